"""Local paths: relative, with a scheme, or plain, they are one place for Python and for Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.engine.checkpoint.files import plain_path
from headrace.engine.sinks.parquet import ParquetSink
from headrace.plan.nodes import OutputMode, Sink
from tests.sql.catalog import BIDS


def test_a_local_path_is_full_and_without_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plain_path("out/") == f"{tmp_path}/out"
    assert plain_path(f"file:{tmp_path}/out") == f"{tmp_path}/out"
    assert plain_path(f"file://{tmp_path}/out") == f"{tmp_path}/out"


def test_another_scheme_stays() -> None:
    assert plain_path("hdfs://cluster/out/") == "hdfs://cluster/out/"


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_sink_publishes_where_it_stages(tmp_path: Path, prefix: str) -> None:
    sink = Sink(BIDS, "q", "parquet", OutputMode.APPEND)
    made = ParquetSink(sink, {"path": f"{prefix}{tmp_path}/out/"})
    made.open()
    # Staged output is found again by this path, which Python must be able to open.
    assert made._path == f"{tmp_path}/out"
    # A query that is not started leaves nothing behind.
    assert not Path(made._path).exists()
