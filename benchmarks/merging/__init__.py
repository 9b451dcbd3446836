"""The experiments of the query-merging paper.

Read in this order: ``merging`` (the bench, its parts and sizes). The query sets:
``query_set_plans`` (the operators they are made of), ``query_set_reader`` (those that were
published), ``query_set_steps`` and ``query_sets`` (those that are generated). The parts that plan:
``ways`` (one set, merged in several ways) and ``planning``. The parts that run: ``streams`` (what
its queries read), ``running`` and ``many``.
"""
