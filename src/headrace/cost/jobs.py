"""What a job of Spark costs, however little it does, and bounds on what shares one."""

from __future__ import annotations

#: Seconds for a join in a job of Spark, however few rows it has.
SECONDS_PER_JOIN = 0.04
#: Rows that are read again in the time that one more job takes.
ROWS_PER_JOB = 200_000
#: Panes by more keys that hold more than this share of the rows are not read for a grouping by
#: fewer: one more pass over the rows costs less.
MOST_GROUPS = 0.5
#: Filters in one store: each has columns of its own, and files have a description of every column.
MOST_FILTERS = 100
