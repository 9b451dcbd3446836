"""The bucket executor: DuckDB inside Spark tasks.

``meanings`` says what means the same in both engines, ``render`` turns definitions into DuckDB's
SQL, ``splits`` finds out how a definition can be cut into parts that need nothing of each other,
``kernel`` is what runs in a task, and ``executor`` brings them together.
"""
