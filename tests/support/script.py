"""A script of a stream's life, in the manner of Spark's StreamTest.

    play(spark, folder, [BIDS],
        StartQuery("hot", "SELECT ..."),
        AddData("bids", ("a", 1, 3)),
        Advance(),
        CheckNewAnswer("hot", ("a", 1)),
        Crash(),
        Advance(),
    )

Each ``AddData`` is one Parquet file and one micro-batch of its stream. ``Advance`` processes all
there is: with ``availableNow``, or, after ``Run``, by waiting until the running race has committed
it. Everything goes through the public API. When a step fails, the error carries the script, the
progress of the queries, the watermarks, the files of the checkpoint and the plans.
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
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from headrace.errors import HeadraceError
from headrace.query import QueryHandle
from tests.support.compare import arrow_rows, assert_same_rows, spark_rows

BASE = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
#: Streams meet by what they have, never by how loaded the machine is.
PATIENT = {
    "spark.headrace.epoch.gatherTimeout": "60 seconds",
    "spark.headrace.stream.idleTimeout": "60 seconds",
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


# The steps


@dataclass(frozen=True)
class Step:
    """One line of a script."""

    def play(self, stage: Stage) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class StartQuery(Step):
    """Start a query; it joins at once if the race runs."""

    name: str
    sql: str
    format: str = "parquet"
    mode: str | None = None
    options: tuple[tuple[str, object], ...] = ()
    function: Callable[[DataFrame, int], None] | None = None

    def play(self, stage: Stage) -> None:
        stage.queries[self.name] = self
        stage.start_query(self)
        if stage.race.isActive:
            handle = stage.handles[self.name]
            stage.wait_until(lambda: handle.status["message"] == "running", f"{self.name} to join")


@dataclass(frozen=True)
class StopQuery(Step):
    """Let a query leave."""

    name: str

    def play(self, stage: Stage) -> None:
        handle = stage.handles[self.name]
        handle.stop()
        stage.wait_until(lambda: not handle.isActive, f"{self.name} to leave")
        del stage.queries[self.name]


class AddData(Step):
    """One file of rows, given in the order of the stream's columns."""

    def __init__(self, stream: str, *rows: Sequence[Any]) -> None:
        self.stream = stream
        self.rows = rows

    def __repr__(self) -> str:
        return f"AddData({self.stream!r}, {', '.join(map(repr, self.rows))})"

    def play(self, stage: Stage) -> None:
        stage.add_file(self.stream, self.rows)


@dataclass(frozen=True)
class AddStream(Step):
    """A stream that is registered in the middle of the script."""

    stream: Stream

    def play(self, stage: Stage) -> None:
        stage.streams[self.stream.name] = self.stream
        stage.register(self.stream)


@dataclass(frozen=True)
class Advance(Step):
    """Process everything that was added."""

    def play(self, stage: Stage) -> None:
        if stage.race.isActive:
            stage.wait_until(stage.all_processed, "everything to be processed")
        else:
            stage.race.start(availableNow=True)
            if not stage.race.awaitTermination(WAIT_SECONDS):
                raise AssertionError("the race did not end")
            assert stage.all_processed(), f"unprocessed: {stage.processed()} of {stage.files}"


@dataclass(frozen=True)
class Run(Step):
    """Let the race run on and on, until ``Stop``."""

    every: str = "50 milliseconds"

    def play(self, stage: Stage) -> None:
        stage.race.start(processingTime=self.every)


@dataclass(frozen=True)
class Stop(Step):
    """Stop a running race as a user does."""

    def play(self, stage: Stage) -> None:
        stage.race.stop()


@dataclass(frozen=True)
class Restart(Step):
    """Forget the race and begin anew from its checkpoint, with the same queries."""

    settings: tuple[tuple[str, str], ...] = ()

    def play(self, stage: Stage) -> None:
        stage.race.stop()
        stage.open(dict(self.settings))


@dataclass(frozen=True)
class Crash(Step):
    """Lose the end of the last epoch, as a crash would, and begin anew.

    ``before="returned"`` loses Spark's own commits of these streams (all by default): the engine
    has committed the epoch, and Spark hands the batches over again. ``before="commit"`` loses the
    engine's commit as well: the epoch's state and output files lie there, and count for nothing.
    """

    before: str = "returned"
    streams: tuple[str, ...] | None = None

    def play(self, stage: Stage) -> None:
        stage.race.stop()
        last = stage.commit()
        if self.before == "commit":
            os.remove(stage.checkpoint / "epochs" / f"{last['epoch']:010d}.commit")
        intent = json.loads(
            (stage.checkpoint / "epochs" / f"{last['epoch']:010d}.intent").read_text()
        )
        for stream, batch in intent["batches"].items():
            if self.streams is None or stream in self.streams:
                commits = stage.checkpoint / "ingest" / stream / "commits"
                for name in (str(batch), f".{batch}.crc"):
                    (commits / name).unlink(missing_ok=True)
        stage.open()


class CheckAnswer(Step):
    """Everything that a query has put out."""

    def __init__(self, query: str, *rows: Sequence[Any]) -> None:
        self.query = query
        self.rows = rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.query!r}, {', '.join(map(repr, self.rows))})"

    def play(self, stage: Stage) -> None:
        stage.checked[self.query] = stage.last_epoch()
        assert_same_rows(stage.answer(self.query), self.rows, repr(self))


class CheckNewAnswer(CheckAnswer):
    """What a query has put out since the last check."""

    def play(self, stage: Stage) -> None:
        after = stage.checked.get(self.query, 0)
        stage.checked[self.query] = stage.last_epoch()
        assert_same_rows(stage.answer(self.query, after), self.rows, repr(self))


class CheckEpochs(Step):
    """What a query has put out in each epoch since the last check."""

    def __init__(self, query: str, *epochs: Sequence[Sequence[Any]]) -> None:
        self.query = query
        self.epochs = epochs

    def __repr__(self) -> str:
        return f"CheckEpochs({self.query!r}, {', '.join(map(repr, self.epochs))})"

    def play(self, stage: Stage) -> None:
        first = stage.checked.get(self.query, 0) + 1
        last = stage.checked[self.query] = stage.last_epoch()
        assert last - first + 1 == len(self.epochs), f"epochs {first} to {last} ran"
        for number, rows in enumerate(self.epochs, first):
            found = read_epoch(stage.output(self.query), number)
            assert_same_rows(found, rows, f"epoch {number} of {self.query}")


@dataclass(frozen=True)
class CheckProgress(Step):
    """Figures of a query's reports, added up over all of them."""

    query: str
    figures: tuple[tuple[str, int], ...]

    def play(self, stage: Stage) -> None:
        reports = stage.handles[self.query].recentProgress
        for figure, expected in self.figures:
            found = sum(report[figure] for report in reports)
            assert found == expected, f"{figure} of {self.query} is {found}, not {expected}"


@dataclass(frozen=True)
class Check(Step):
    """Anything else; the function raises, or answers False."""

    what: str
    test: Callable[[Stage], object]

    def play(self, stage: Stage) -> None:
        assert self.test(stage) is not False, self.what


@dataclass(frozen=True)
class ExpectError(Step):
    """A step that must fail, in one line, with this condition and these words."""

    step: Step
    condition: str
    words: str

    def play(self, stage: Stage) -> None:
        try:
            self.step.play(stage)
        except HeadraceError as error:
            check_error(error, self.condition, self.words)
        else:
            raise AssertionError(f"{self.step} did not fail")


def check_error(error: BaseException | None, condition: str, *words: str) -> None:
    """Fail unless this is one of our errors: one line, this condition, these words."""
    assert isinstance(error, HeadraceError), f"not one of our errors: {error!r}"
    text = str(error)
    assert error.condition == condition, text
    assert text.startswith(f"{condition}: "), text
    assert "\n" not in text, text
    for part in words:
        assert part in text, f"{part!r} is not in {text!r}"


# The stage on which steps are played


@dataclass
class Stage:
    """The streams, the race and what was checked already."""

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
        """A race in a session of its own, with every stream and query of the script."""
        self.opened_at = self.last_epoch()
        self.session = self.spark.newSession()
        for key, value in {**QUICK, **self.settings, **(settings or {})}.items():
            self.session.conf.set(key, value)
        self.race = Headrace(self.session, str(self.checkpoint))
        hasten(self.race)
        for stream in self.streams.values():
            self.register(stream)
        for name, frame in self.tables.items():
            self.race.table(name, frame)
        self.handles = {}
        for query in self.queries.values():
            self.start_query(query)

    def register(self, stream: Stream) -> None:
        path = self.folder / "in" / stream.name
        path.mkdir(parents=True, exist_ok=True)
        reader = self.session.readStream.schema(stream.columns).option("maxFilesPerTrigger", 1)
        self.race.stream(
            stream.name, reader.parquet(str(path)), stream.time, stream.delay, stream.ttl
        )

    def start_query(self, query: StartQuery) -> None:
        writer = self.race.sql(query.sql).writeStream.queryName(query.name)
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
        last = self.race.lastProgress
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
                return spark_rows(self.race.results(query))
            case other:
                raise NotImplementedError(f"nothing reads {other} back")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {WAIT_SECONDS} s for {what}")
            if not self.race.isActive and not condition():
                self.race.awaitTermination()
                raise AssertionError(f"the race ended before {what}")
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
                self.race.sql(self.queries[name].sql).explain()
            lines.append(f"plan of {name}:\n{text.getvalue()}")
        return "\n".join(lines)


#: Tiny inputs run faster through Spark's interpreter than through its compiler.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.headrace.shufflePartitions": "1",
    **PATIENT,
}


def hasten(race: Headrace) -> None:
    """The same for the engine's own session, which takes none of these over from the user's."""
    conf = race._race.executor.session.conf
    conf.set("spark.sql.codegen.wholeStage", "false")
    conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


def play(
    spark: SparkSession,
    folder: Path,
    streams: Sequence[Stream],
    *steps: Step,
    tables: Mapping[str, DataFrame] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Stage:
    """Play a script; a step that fails is named, with all that is known of the race."""
    stage = Stage(spark, folder, settings or {}, {s.name: s for s in streams}, tables or {})
    stage.open()
    try:
        for number, step in enumerate(steps):
            try:
                step.play(stage)
            except Exception as error:
                error.add_note(_script_text(steps, number))
                error.add_note(stage.describe())
                raise
    finally:
        stage.race.stop()
    return stage


def read_epochs(path: str, after: int = 0) -> list[tuple[Any, ...]]:
    """The rows of a parquet sink, of the epochs after this one."""
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    epochs = [int(n.removeprefix("epoch=")) for n in names if n.startswith("epoch=")]
    return [row for epoch in epochs if epoch > after for row in read_epoch(path, epoch)]


def read_epoch(path: str, epoch: int) -> list[tuple[Any, ...]]:
    files = sorted(Path(path, f"epoch={epoch}").glob("*.parquet"))
    return [row for file in files for row in arrow_rows(parquet.ParquetFile(file).read())]


def _script_text(steps: Sequence[Step], failed: int) -> str:
    marks = ["=> " if i == failed else "   " for i in range(len(steps))]
    return "\n".join(["the script:", *(f"{m}{s}" for m, s in zip(marks, steps, strict=True))])


def _times(watermarks: Mapping[str, int]) -> dict[str, str]:
    begin = BASE.timestamp() * 1_000
    return {name: f"{(mark - begin) / 1_000:g} s" for name, mark in watermarks.items()}
