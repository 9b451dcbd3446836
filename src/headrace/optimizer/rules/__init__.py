"""The optimizer's rules, one file each, named like the rule; ``STAGES`` runs them in this order.

``fold_constants`` and ``merge_filters`` give a condition one spelling, and
``pull_projection_above_join``, ``move_table_from_between`` and ``merge_projection_into_aggregate``
one to joins and aggregates of derived tables; ``make_outer_join_inner`` gives one to joins of which
a filter wants only pairs.
``push_filter_through_project``, ``push_filter_through_union``, ``push_filter_into_join`` and
``push_filter_through_aggregate`` move filters towards the streams; ``merge_projections``,
``prune_columns`` and ``remove_trivial_projection`` drop what nobody reads;
``largest_window_only`` makes joins in processing time one tree, whose order is free.
``early_aggregation`` marks aggregates over joins that may be computed from sets.
"""
