"""The compiler: from plans to operators that share stores.

``planning`` is the one way from queries to what runs: merge, lay out, compile. ``compile`` turns
plans into operators, with ``joins`` and ``sets`` for those two kinds; ``context`` is what these ask
of the whole compilation, and ``physical_plan`` what comes out of it. ``shared_state`` says which
queries keep their state together.
"""
