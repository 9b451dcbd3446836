"""Orders of window joins: which are valid, by which rule, and which is best.

After "Unraveling the Impact of Window Semantics: Optimizing Join Order for Efficient Stream
Processing" (PVLDB 18(8), 2025), and past it. Read ``properties`` (Table 2), the three
transformation rules (``boundary_swap``, ``largest_window``, ``time_propagation``), then
``containment``, which makes every order of sliding and interval joins valid, ``steps`` (what an
order computes), ``enumeration`` (all trees, or a few of them), ``search`` (the cheapest),
``rewrite`` (an order as a plan) and ``describe``.
"""
