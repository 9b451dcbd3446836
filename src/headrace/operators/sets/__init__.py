"""Aggregates over joins, from inputs that are aggregated before they are joined.

What is kept of an input is an ``aggregation_set``, a ``trailing_set`` with the changes of its
window (``window_change``), or the ``table_set`` of a static table. ``watched_keys`` and
``window_load`` tell the planner what came into them. ``definition`` joins sets and
aggregates above; ``windowed`` does so when windows close, ``landmark`` as rows arrive,
``per_input_windows`` where each input has a window of its own: from all ``window_pairs``, or from
the ``output_set`` to which only those that changed are added.
"""
