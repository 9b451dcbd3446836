"""In which order a new row of each input of a multi-way join probes the others.

After "Runtime-Optimized Multi-way Stream Join Operator for Large-scale Streaming Data" (Hu, Qiu),
Section 4.2. Read ``graph`` (who can be probed from whom), ``sequences`` (Algorithm 4), ``strategy``
(what a strategy is), ``fixed_order``, ``selectivity_first``, ``cost_greedy``, then ``dp_pick`` (the
cheapest, Algorithm 3), ``ablations`` and ``strategies`` (all by name). ``describe`` tells people.
"""
