"""The compiler: from plans to operators that share stores.

``planning`` is the one way from queries to what runs: merge, lay out, compile. ``compilation`` goes
on from what was compiled before; ``compile`` turns plans into operators, with ``joins`` and
``sets`` for those two kinds; ``context`` is what these ask of the whole, and ``physical_plan`` what
comes out of it. ``shared_state`` says which queries keep their state together.
"""
