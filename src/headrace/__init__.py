"""Headrace: standing SQL queries over streams on Apache Spark, planned together.

from headrace import Headrace

hr = Headrace(spark, checkpoint="state/")
hr.stream("bids", bids, time="ts", delay="10 seconds")
query = hr.sql("SELECT auction, window, COUNT(*) AS n FROM bids "
                 "GROUP BY auction, window(ts, '10 minutes')")
query.writeStream.queryName("hot").format("parquet").option("path", "out/").start()
hr.start(availableNow=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import connect
    from headrace.session import Headrace, Query, QueryHandle

__version__ = "0.1.0"
__all__ = ["Headrace", "HeadraceError", "Query", "QueryHandle", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    """Import the session on first use: the algebra and the CLI's help need no Spark."""
    if name in ("Headrace", "Query", "QueryHandle"):
        from headrace import session

        return getattr(session, name)
    if name == "connect":
        from headrace.client import connect

        return connect
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
