"""The bucket executor: DuckDB inside Spark tasks.

A write passes through these files in this order: ``translation`` turns it into DuckDB's SQL (with
``render``, and ``meanings`` for what means the same in both engines) and finds out how it can be
cut (``splits``); ``pieces`` cuts it and shares the pieces out to tasks; ``kernel`` is what runs in
a task; ``answers`` puts together what the tasks say. ``executor`` leads it through all of them.

Away from local disks, ``stores`` finds out once what tasks can reach (with ``s3_access`` for the
options of S3), and ``remote_files`` is what moves bytes in a task.
"""
