"""Relational definitions: what operators compute, as queries over named inputs.

``definition`` is what one is, with the building blocks that all others use. ``partials`` takes
aggregates apart into states that can be stored (``moments``: of variances and correlations,
``sketches``: of approximate counts; ``exact_partials``: such as can be subtracted; ``coalescing``:
of rows that are all alike, ``factors``: of all pairs of rows), ``key_bits`` counts different keys,
``windows`` places rows and panes into windows, ``lateness`` says which rows are late.
``join_shape`` is what a join that runs as one operator looks like, ``join_conditions`` what its
conditions on time are in SQL, and ``join_tree`` the joins in an order.
"""
