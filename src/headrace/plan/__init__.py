"""The algebra: what a standing query means, without Spark and without SQL text.

Read in this order: ``types`` and ``durations``, ``windows``, ``expressions``, ``nodes``, then
``times`` (event time through a plan), ``reach`` and ``expiry`` (how long rows matter to a join),
``join_graph`` (trees of joins as what they mean), ``substitute`` (expressions over other columns)
and what stands between joins and is looked through (``derived_tables``, ``tables_between``,
``one_tree``), ``coverage`` and ``window_graph`` (windows from windows), ``output_modes``,
``relabelling`` (what a plan computes, whatever its columns are called), and the printers ``text``,
``json`` and ``dot``. ``hashing`` makes deep plans quick to look up, and ``depth`` says how deep
they may be.
"""
