"""Early aggregation: aggregates over joins, computed from sets that are aggregated before the join.

From "Processing Window-based Aggregation Join Queries over Data Streams", the work on continuous
aggregation join queries. ``shape`` says which queries these are, ``sets`` what may be aggregated
below the join (its Rules 1 and 2), and ``describe`` tells
people what was chosen and why. The rule that marks such aggregates is ``early_aggregation``.
"""
