"""What a task does with files that are on no local disk, on a server in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headrace.engine.execution.duckdb import kernel, remote_files
from headrace.engine.execution.duckdb.remote_files import (
    Access,
    RemoteFiles,
    Unreachable,
    try_store,
)
from headrace.engine.execution.duckdb.s3_access import options_of, s3_access

pytest.importorskip(
    "moto.server", reason="moto is not installed: pip install headrace[object-stores]"
)
object_store = pytest.importorskip("tests.support.object_store")

ROWS = pa.table({"k": [1, 2, 3, 4], "v": [4, 5, None, 7]})


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    with object_store.serving() as found:
        yield found


def access(store: Any, bucket: str = "bucket", **options: str) -> Access:
    configured = {
        "fs.s3a.endpoint": store.endpoint,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": object_store.ACCESS_KEY,
        "fs.s3a.secret.key": object_store.SECRET_KEY,
        **{f"fs.s3a.{name.replace('_', '.')}": value for name, value in options.items()},
    }
    return s3_access(bucket, options_of(bucket, configured), {})


@pytest.fixture
def files(store: Any) -> Iterator[RemoteFiles]:
    found = RemoteFiles({"s3a://bucket": access(store)})
    yield found
    found.close()


def run(store: Any, paths: list[str], folder: str, **more: Any) -> dict[str, Any]:
    """What a task answers that writes the rows of some files whose key is larger than one."""
    piece = {
        "write": 0,
        "inputs": {"x": "rows"},
        "sql": "SELECT * FROM x",
        "inner": None,
        "watch": "count(*) AS n, max(v) AS m",
        "columns": "k, v",
        "outputs": [{"folder": folder, "name": "out", "where": "true", "part": None}],
    }
    reading = {
        "files": paths,
        "shared": [],
        "columns": {"k": "BIGINT", "v": "BIGINT"},
        "where": "k > 1",
        "block": "",
        "strict": True,
    }
    spec = {
        "version": duckdb.__version__,
        "memory": "100MB",
        "stores": {"s3a://bucket": access(store)},
        "inputs": {"rows": {**reading, **more}},
        "pieces": [piece],
    }
    (answer,) = kernel.run_task(spec)["answers"]
    found: dict[str, Any] = answer
    return found


def test_a_task_reads_and_writes_there(store: Any) -> None:
    """A file, a file without an ending, and a folder as Spark writes them."""
    store.put("one/a b.parquet", ROWS)
    store.put("one/plain", ROWS)
    store.put("one/folder/part-0.parquet", ROWS)
    store.put("one/folder/part-1.parquet", ROWS)
    store.client.put_object(Bucket="bucket", Key="one/folder/_SUCCESS", Body=b"")
    names = ("a b.parquet", "plain", "folder")
    answer = run(store, [f"s3a://bucket/one/{name}" for name in names], "s3a://bucket/two")
    assert answer["seen"] == (12, 7)
    ((path, rows, size, _),) = answer["files"]
    key = path.removeprefix("s3a://bucket/")
    assert rows == 12
    assert size == len(store.bytes(key))
    found = store.table(key).to_pylist()
    wanted = [row for row in ROWS.to_pylist() if row["k"] > 1] * 4
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_rows_are_what_they_are_on_local_disks(store: Any, tmp_path: Path) -> None:
    """Spark's old format of times is read the same; times without a zone are Spark's alone."""
    times = pa.array([1_704_067_200_000_000, -1, 253_370_764_800_000_000])
    old = pa.table({"k": [1, 2, 3], "v": times.cast(pa.timestamp("us"))})
    store.put("old.parquet", old, use_deprecated_int96_timestamps=True)
    store.put("bare.parquet", old)
    columns = {"k": "BIGINT", "v": "TIMESTAMP WITH TIME ZONE"}
    local = tmp_path / "old.parquet"
    local.write_bytes(store.bytes("old.parquet"))
    here = run(store, [str(local)], str(tmp_path), columns=columns)
    there = run(store, ["s3a://bucket/old.parquet"], "s3a://bucket/out", columns=columns)
    assert there["seen"] == here["seen"]
    bare = run(store, ["s3a://bucket/bare.parquet"], "s3a://bucket/out", columns=columns)
    assert "timestamps without a time zone" in bare["error"]
    # That is about the rows, and nothing that the store is to blame for.
    assert "store" not in bare


def test_no_rows_are_no_file(store: Any) -> None:
    store.put("few.parquet", ROWS)
    answer = run(store, ["s3a://bucket/few.parquet"], "s3a://bucket/none", where="k > 9")
    assert answer["files"] == []
    assert not store.keys("none/")


def test_local_copies_end_with_the_task(
    store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(remote_files, "local_folder", lambda: str(tmp_path))
    made: list[str] = []
    usual = tempfile.mkdtemp

    def noted(**options: Any) -> str:
        made.append(usual(**options))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    store.put("again.parquet", ROWS)
    for path in ("s3a://bucket/again.parquet", "s3a://bucket/missing.parquet"):
        run(store, [path], "s3a://bucket/out")
    copies = [folder for folder in made if folder.startswith(str(tmp_path))]
    assert len(copies) == 2
    assert not any(os.path.exists(folder) for folder in copies)


def test_what_is_not_there_is_the_stores_trouble(store: Any, files: RemoteFiles) -> None:
    answer = run(store, ["s3a://bucket/nowhere/1.parquet"], "s3a://bucket/out")
    assert answer["store"] == "s3a://bucket"
    assert "nowhere/1.parquet" in answer["error"]
    assert object_store.SECRET_KEY not in str(answer)
    with pytest.raises(Unreachable, match="was not told how to reach s3a://other"):
        files.fetch(["s3a://other/x.parquet"])


def test_trying_a_store_leaves_nothing(store: Any) -> None:
    spec = {"stores": {"s3a://other": access(store, "other")}, "file": None}
    assert try_store({**spec, "folder": "s3a://other/state"}) is None
    # A folder is a name without bytes there, as other connectors leave it too.
    assert store.keys("", "other") in ([], ["state/"])
    store.put("in/1.parquet", ROWS, "other")
    assert try_store({**spec, "file": "s3a://other/in/1.parquet", "folder": None}) is None
    assert "does not exist" in str(
        try_store({**spec, "file": "s3a://other/in/2.parquet", "folder": None})
    )


@pytest.mark.parametrize(
    ("bucket", "options"),
    [("no-such-bucket", {}), ("bucket", {"endpoint": "http://127.0.0.1:9"})],
)
def test_a_store_that_cannot_be_reached(store: Any, bucket: str, options: dict[str, str]) -> None:
    spec = {"stores": {f"s3a://{bucket}": access(store, bucket, **options)}, "file": None}
    reason = try_store({**spec, "folder": f"s3a://{bucket}/state"})
    assert reason is not None
    assert reason.count("\n") == 0
    assert object_store.SECRET_KEY not in reason


def test_without_its_library_there_is_no_hdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARROW_LIBHDFS_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    hdfs = Access("hdfs", {"host": "name", "port": 8020, "user": "me"})
    spec = {"stores": {"hdfs://name:8020": hdfs}, "file": None, "folder": "hdfs://name:8020/x"}
    assert "there is no libhdfs" in str(try_store(spec))
