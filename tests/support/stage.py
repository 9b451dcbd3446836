"""The stage on which scripts are played: streams of files, an engine, and what it has put out.

Everything goes through the public API; the checkpoint's files are read to know what has been
processed, as a person would.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from headrace.query import QueryHandle
from tests.support.compare import arrow_rows, spark_rows

if TYPE_CHECKING:
    from tests.support.script import StartQuery

BASE = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
#: Streams meet by what they have, never by how loaded the machine is.
PATIENT = {
    "spark.headrace.epoch.gatherTimeout": "60 seconds",
    "spark.headrace.epoch.absenceTimeout": "60 seconds",
}
WAIT_SECONDS = 90
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def at(seconds: float) -> datetime.datetime:
    """An instant of the script, which begins at 0."""
    return BASE + datetime.timedelta(seconds=seconds)


def span(start: float, end: float) -> tuple[datetime.datetime, datetime.datetime]:
    """A window, as results show it."""
    return at(start), at(end)


@dataclass(frozen=True)
class Stream:
    """A stream of Parquet files. Numbers in timestamp columns are seconds of the script."""

    name: str
    columns: str
    time: str = "ts"
    delay: str = "0 seconds"
    ttl: str | None = None
    idle: str | None = None

    def arrow_schema(self) -> pa.Schema:
        pairs = [column.split() for column in self.columns.split(",")]
        return pa.schema([(name, _ARROW[kind]) for name, kind in pairs])

    def table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        schema = self.arrow_schema()
        values = [[row[i] for row in rows] for i in range(len(schema))]
        for i, kind in enumerate(schema):
            if pa.types.is_timestamp(kind.type):
                values[i] = [at(v) if isinstance(v, int | float) else v for v in values[i]]
        return pa.table(
            [pa.array(v, kind.type) for v, kind in zip(values, schema, strict=True)], schema=schema
        )


@dataclass
class Stage:
    """The streams, the engine and what was checked already."""

    spark: SparkSession
    folder: Path
    settings: Mapping[str, str]
    streams: dict[str, Stream] = field(default_factory=dict)
    tables: Mapping[str, DataFrame] = field(default_factory=dict)
    queries: dict[str, StartQuery] = field(default_factory=dict)
    handles: dict[str, QueryHandle] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)
    _clock: int = 0

    def __post_init__(self) -> None:
        self.checkpoint = self.folder / "checkpoint"

    def open(self, settings: Mapping[str, str] | None = None) -> None:
        """An engine in a session of its own, with every stream and query of the script."""
        self.opened_at = self.last_epoch()
        self.session = self.spark.newSession()
        for key, value in {**QUICK, **self.settings, **(settings or {})}.items():
            self.session.conf.set(key, value)
        self.hr = Headrace(self.session, str(self.checkpoint))
        for stream in self.streams.values():
            self.register(stream)
        for name, frame in self.tables.items():
            self.hr.table(name, frame)
        self.handles = {}
        for query in self.queries.values():
            self.start_query(query)

    def register(self, stream: Stream) -> None:
        path = self.folder / "in" / stream.name
        path.mkdir(parents=True, exist_ok=True)
        reader = self.session.readStream.schema(stream.columns).option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(path))
        self.hr.stream(stream.name, frame, stream.time, stream.delay, stream.ttl, idle=stream.idle)

    def start_query(self, query: StartQuery) -> None:
        writer = self.hr.sql(query.sql).writeStream.queryName(query.name)
        if query.mode is not None:
            writer = writer.outputMode(query.mode)
        if query.function is not None:
            writer = writer.foreachBatch(query.function)
        else:
            writer = writer.format(query.format)
        if query.format == "parquet":
            writer = writer.option("path", self.output(query.name))
        for key, value in query.options:
            writer = writer.option(key, value)
        self.handles[query.name] = writer.start()

    def output(self, query: str) -> str:
        return str(self.folder / "out" / query)

    def add_file(self, stream: str, rows: Sequence[Sequence[Any]]) -> None:
        """Files appear at once and are ordered by their times, as the file source wants it."""
        number = self.files.get(stream, 0)
        self.files[stream] = number + 1
        folder = self.folder / "in" / stream
        hidden, final = folder / f".{number:05d}.parquet", folder / f"{number:05d}.parquet"
        parquet.write_table(self.streams[stream].table(rows), hidden)
        self._clock += 1
        moment = 1_700_000_000 + self._clock
        os.utime(hidden, (moment, moment))
        os.replace(hidden, final)

    # Looking

    def commit(self) -> dict[str, Any]:
        """The last commit in the checkpoint."""
        file = self.checkpoint / "epochs" / f"{self.last_epoch():010d}.commit"
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def last_epoch(self) -> int:
        folder = self.checkpoint / "epochs"
        names = os.listdir(folder) if folder.is_dir() else []
        return max((int(n.split(".")[0]) for n in names if n.endswith(".commit")), default=0)

    def intents(self) -> list[dict[str, Any]]:
        """What each committed epoch was made of, as far as the checkpoint still knows."""
        folder = self.checkpoint / "epochs"
        numbers = range(1, self.last_epoch() + 1)
        return [json.loads((folder / f"{number:010d}.intent").read_text()) for number in numbers]

    def processed(self) -> dict[str, int]:
        """Files of each stream that a commit holds."""
        batches = self.commit()["batches"] if self.last_epoch() else {}
        return {stream: batch + 1 for stream, batch in batches.items()}

    def all_processed(self) -> bool:
        done = self.processed()
        used = {
            stream
            for name, handle in self.handles.items()
            if handle.isActive
            for stream in self.queries[name].sql.replace("(", " ").replace(",", " ").split()
            if stream in self.streams
        }
        if any(done.get(stream, 0) < self.files.get(stream, 0) for stream in used):
            return False
        if self.last_epoch() <= self.opened_at:
            return True
        last = self.hr.lastProgress
        # The report follows the commit; what reads reports after Advance must find it.
        return last is not None and bool(last["epoch"] >= self.last_epoch())

    def answer(self, query: str, after: int = 0) -> list[tuple[Any, ...]]:
        """The rows of a query's sink, of the epochs after this one."""
        match self.queries[query].format:
            case "parquet":
                return read_epochs(self.output(query), after)
            case "memory":
                return spark_rows(self.session.table(query))
            case "results":
                return spark_rows(self.hr.results(query))
            case other:
                raise NotImplementedError(f"nothing reads {other} back")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {WAIT_SECONDS} s for {what}")
            if not self.hr.isActive and not condition():
                self.hr.awaitTermination()
                raise AssertionError(f"the engine ended before {what}")
            time.sleep(0.02)

    def state_files(self, area: str = "state") -> list[str]:
        root = self.checkpoint / area
        return sorted(str(p.relative_to(root)) for p in root.rglob("*.parquet"))

    def describe(self) -> str:
        """What a person wants to see when a step has failed."""
        lines = []
        with contextlib.suppress(Exception):
            state = self.commit()
            lines += [f"epoch {state['epoch']}, batches {state['batches']}"]
            lines += [f"watermarks {_times(state['watermarks'])}"]
        for name, handle in self.handles.items():
            lines.append(f"query {name}: {handle.status}, {handle.exception()}")
            lines += [f"  {report}" for report in handle.recentProgress[-5:]]
        lines += [f"state file {name}" for name in self.state_files()]
        for name in self.handles:
            text = io.StringIO()
            with contextlib.suppress(Exception), contextlib.redirect_stdout(text):
                self.hr.sql(self.queries[name].sql).explain()
            lines.append(f"plan of {name}:\n{text.getvalue()}")
        return "\n".join(lines)


#: Tiny inputs run faster through Spark's interpreter than through its compiler. The engine finds
#: that out by itself; this is for the streams' own queries.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.headrace.shufflePartitions": "1",
    "spark.headrace.sink.retryPause": "20 milliseconds",
    **PATIENT,
}


def read_epochs(path: str, after: int = 0) -> list[tuple[Any, ...]]:
    """The rows of a parquet sink, of the epochs after this one."""
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    epochs = [int(n.removeprefix("epoch=")) for n in names if n.startswith("epoch=")]
    return [row for epoch in epochs if epoch > after for row in read_epoch(path, epoch)]


def read_epoch(path: str, epoch: int) -> list[tuple[Any, ...]]:
    files = sorted(Path(path, f"epoch={epoch}").glob("*.parquet"))
    return [row for file in files for row in arrow_rows(parquet.ParquetFile(file).read())]


def _times(watermarks: Mapping[str, int]) -> dict[str, str]:
    begin = BASE.timestamp() * 1_000
    return {name: f"{(mark - begin) / 1_000:g} s" for name, mark in watermarks.items()}
