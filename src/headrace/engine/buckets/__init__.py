"""The bucket executor: DuckDB inside Spark tasks.

A write passes through these files in this order: ``translation`` turns it into DuckDB's SQL (with
``render``, and ``meanings`` for what means the same in both engines) and finds out how it can be
cut (``splits``); ``pieces`` cuts it and shares the pieces out to tasks; ``kernel`` is what runs in
a task; ``answers`` puts together what the tasks say. ``executor`` leads it through all of them.
"""
