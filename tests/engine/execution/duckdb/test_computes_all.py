"""What nobody reads is computed all the same where that was asked for, and fails if it fails."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from sqlglot import exp

from headrace.definitions.definition import column, number, select
from headrace.operators.write import Write, Written
from headrace.plan.types import BIGINT, Schema
from headrace.state.arrangement import StateFile
from tests.support.engine import tiny_executor
from tests.support.in_process import NeedsSpark, in_process_session

SCHEMA = Schema.of([("k", BIGINT), ("v", BIGINT)])


@pytest.mark.parametrize("watch", [{}, {"rows": exp.Count(this=exp.Star())}])
@pytest.mark.parametrize("divisor", [0, 5])
def test_a_column_that_nobody_reads(
    tmp_path: Path, watch: dict[str, exp.Count], divisor: int
) -> None:
    path = tmp_path / "stored.parquet"
    parquet.write_table(pa.table({"k": [1, 2, 3], "v": [1, divisor, 3]}), path)
    executor = tiny_executor(in_process_session(), executor="buckets")
    file = StateFile(str(path), 1, 3, 0, None, None)
    stored = executor.inputs.bind_files([file], SCHEMA)
    shares = exp.IntDiv(this=number(10), expression=column("v"))
    query = select(stored, {"k": column("k"), "n": shares})
    write = Write("rows", query, Schema.of([("k", BIGINT), ("n", BIGINT)]), watch=watch)
    seen_only = Write(**{**vars(write), "only_seen": True, "computes_all": True})
    if not divisor:
        # What fails in DuckDB is Spark's to judge.
        with pytest.raises(NeedsSpark):
            executor.write_all([seen_only])
        return
    (answer,) = executor.write_all([seen_only])
    assert isinstance(answer, Written)
    assert answer.seen == ({"rows": 3} if watch else {})
