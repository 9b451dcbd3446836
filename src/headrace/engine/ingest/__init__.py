"""Ingest: from Spark's micro-batches to the batches of an epoch.

A ``registered_stream`` is what a user gave. ``ingest`` runs one stateless query of Spark for it
(``spark_log``: at less cost for its log). A ``micro_batch`` is the rows of a stream in an epoch; of
plain Parquet folders tasks read the files themselves (``file_streams``). The ``coordinator`` is
where the batches of all streams meet: ``waiting_batches`` are those whose callbacks wait,
``open_streams`` the streams that are read, and ``next_epoch`` says what the next epoch is made of,
by ``admission`` where all is well. ``standstills`` notices who holds the others back.
"""
