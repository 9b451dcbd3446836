"""The engine: runs all standing queries together, epoch by epoch, on Spark.

``engine`` is its life: streams and queries (``entries``) that come and go, start, stop, restart
(``restarts``: what becomes of queries that failed; ``changes``: of those that are paused, resumed
or forgotten while the others run). ``reporting`` tells of each epoch, ``policy``
hands the settings to the planner. The rooms, in
the order in which a row meets them: ``ingest`` (how micro-batches of many streams meet), ``epochs``
(one epoch from intent to commit), ``execution`` (who runs definitions), ``checkpoint`` (what is
durable, and who owns it), ``sinks`` (where results go), and ``introspection`` (what people are
told).

What is computed is decided elsewhere: ``operators`` say it, ``compiler`` and ``planner`` choose it.
"""
