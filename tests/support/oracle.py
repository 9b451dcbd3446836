"""What results should be, by other means than the engine's.

``run_batch`` is the meaning of a plan over complete inputs, ``run_epochs`` what comes out in each
epoch; both are written from the meaning of results alone, on DuckDB. ``assert_same_rows`` compares
multisets of rows.
"""

from __future__ import annotations

from tests.support.compare import arrow_rows, assert_same_rows, plain_rows, spark_rows
from tests.support.oracle_batch import run_batch
from tests.support.oracle_epochs import run_epochs

__all__ = ["arrow_rows", "assert_same_rows", "plain_rows", "run_batch", "run_epochs", "spark_rows"]
