"""What the benches share.

Read in this order: ``report`` (what a bench is given, and the one shape of what it reports),
``data`` (streams of events as files), ``parts`` (benches of several parts, each of which can be run
alone), ``fingerprints`` (large results compared by checksum), ``cpu_time`` (what all processes
computed), ``in_process`` (sessions whose tasks run in this process, also without Spark),
``stepped`` (a query over epochs there), ``counted_rows`` (what its tasks read, grouped and
joined), ``plots`` and ``bar_charts`` (the report as pictures).
"""
