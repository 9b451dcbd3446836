"""The engine: runs all standing queries together, epoch by epoch, on Spark.

Read ``checkpoint`` (what is durable) and ``arrangements`` (the state), ``operators/`` (what is
computed), ``grouping`` and ``layouts`` (which panes are stored for which windows), ``compile``
(plans to operators), ``runner`` (one epoch from intent to commit), and ``coordinator`` with
``ingest`` (how micro-batches of many streams meet). ``executor`` is the only place that runs Spark
SQL.
"""
