"""The engine as a whole: ``ingest`` (throughput of one window over many events), ``latency`` (small
micro-batches, early and late in a long run), ``executors`` (Spark's operators, and DuckDB inside
tasks), ``soak`` (memory over minutes of a live stream).
"""
