"""What is known about streams, and how surely.

Read ``figure`` (Exact, Estimated or Unknown), then ``catalog`` (the statistics of a stream, and how
each epoch's observation updates them), ``load`` (what an epoch brings to a grouping), ``key_bits``
(how many keys that has), ``moving_window`` (what a window holds that moves) and ``probes`` (what
probes of a join found), with ``forecast`` for the next of a series.
"""

from headrace.stats.catalog import NO_STATISTICS, Observation, Statistics, StreamStatistics
from headrace.stats.figure import UNKNOWN, Estimated, Exact, Figure, Unknown

__all__ = [
    "NO_STATISTICS",
    "UNKNOWN",
    "Estimated",
    "Exact",
    "Figure",
    "Observation",
    "Statistics",
    "StreamStatistics",
    "Unknown",
]
