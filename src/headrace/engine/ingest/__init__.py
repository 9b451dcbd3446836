"""Ingest: from Spark's micro-batches to the batches of an epoch.

A ``registered_stream`` is what a user gave. ``ingest`` runs one stateless query of Spark for it
(``spark_log``: at less cost for its log), ``coordinator`` is where the batches of all streams meet,
``admission`` says which of them make up the next epoch, and ``standstills`` notices who holds the
others back. A ``micro_batch`` is the rows of a stream in an epoch; of plain Parquet folders tasks
read the files themselves (``file_streams``).
"""
