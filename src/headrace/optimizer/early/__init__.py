"""Early aggregation: aggregates over joins, from sets that are aggregated before the join.

From the work on continuous aggregation join queries over data streams, which calls plans early and
late aggregation plans. ``shape`` says which queries these are, ``aggregates`` which can be taken
apart and ``factors`` how those over several inputs are, ``sets`` what is aggregated below the
join (its Rules 1 and 2), ``guards`` when what might fail is left to be computed there, ``upkeep``
whether an output can follow windows that move, and ``describe`` tells people what was chosen and
why. The rule that marks such aggregates is ``early_aggregation``.
"""
