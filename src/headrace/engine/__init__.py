"""The engine: runs all standing queries together, epoch by epoch, on Spark.

Read ``checkpoint`` (what is durable), ``clocks`` (how far event time has got) and ``arrangements``
(the state), ``operators/`` (what is computed), ``grouping`` and ``layouts`` (which panes are stored
for which windows), ``compile`` (plans to operators), ``runner`` and ``attempt`` (one epoch from
intent to commit), and ``coordinator`` with ``ingest`` (how micro-batches of many streams meet).
``folding``, ``holding``, ``fan_out`` and ``catching_up`` are what makes many queries cheap: one
store for many filters, rows that several need, one result for many sinks, and when late joiners may
share.

When something fails, ``blame`` finds out whose fault it is; what a sink does not take goes to the
``outbox`` and is tried again (``deliveries``), and a query that fails goes on by itself
(``branches``, ``branch_runs``, ``restarts``, ``storage``). ``gate`` is what an epoch that was
abandoned cannot pass. ``executor`` is the only place that runs Spark SQL.
"""
