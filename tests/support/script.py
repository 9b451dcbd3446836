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
there is: with ``availableNow``, or, after ``Run``, by waiting until the running engine has
committed it. Everything goes through the public API. When a step fails, the error carries the
script, the progress of the queries, the watermarks, the files of the checkpoint and the plans.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError
from tests.support.compare import assert_same_rows
from tests.support.stage import WAIT_SECONDS, Stage, Stream, at, read_epoch, span

__all__ = [
    "AddData",
    "AddStream",
    "Advance",
    "Check",
    "CheckAnswer",
    "CheckEpochs",
    "CheckNewAnswer",
    "CheckProgress",
    "Crash",
    "ExpectError",
    "Restart",
    "Run",
    "Stage",
    "StartQuery",
    "Step",
    "Stop",
    "StopQuery",
    "Stream",
    "WaitUntil",
    "at",
    "check_error",
    "play",
    "read_epoch",
    "refused",
    "span",
]


@dataclass(frozen=True)
class Step:
    """One line of a script."""

    def play(self, stage: Stage) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class StartQuery(Step):
    """Start a query; it joins at once if the engine runs."""

    name: str
    sql: str
    format: str = "parquet"
    mode: str | None = None
    options: tuple[tuple[str, object], ...] = ()
    function: Callable[[DataFrame, int], None] | None = None

    def play(self, stage: Stage) -> None:
        stage.queries[self.name] = self
        stage.start_query(self)
        if stage.hr.isActive:
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
        if stage.hr.isActive:
            stage.wait_until(stage.all_processed, "everything to be processed")
        else:
            stage.hr.start(availableNow=True)
            if not stage.hr.awaitTermination(WAIT_SECONDS):
                raise AssertionError("the engine did not end")
            assert stage.all_processed(), f"unprocessed: {stage.processed()} of {stage.files}"


@dataclass(frozen=True)
class Run(Step):
    """Let the engine run on and on, until ``Stop``."""

    every: str = "50 milliseconds"

    def play(self, stage: Stage) -> None:
        stage.hr.start(processingTime=self.every)


@dataclass(frozen=True)
class Stop(Step):
    """Stop a running engine as a user does."""

    def play(self, stage: Stage) -> None:
        stage.hr.stop()


@dataclass(frozen=True)
class Restart(Step):
    """Forget the engine and begin anew from its checkpoint, with the same queries."""

    settings: tuple[tuple[str, str], ...] = ()

    def play(self, stage: Stage) -> None:
        stage.hr.stop()
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
        stage.hr.stop()
        last = stage.commit()
        if self.before == "commit":
            os.remove(stage.checkpoint / "epochs" / f"{last['epoch']:010d}.commit")
            (stage.checkpoint / "epochs" / "latest").unlink(missing_ok=True)
            # Output is published after the commit, and not before it.
            for name in stage.queries:
                shutil.rmtree(Path(stage.output(name)) / f"epoch={last['epoch']}", True)
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
    """What a query has put out in each epoch since the last check.

    With ``of_batches`` epochs without a batch do not count: a decision about a query may be
    committed before the first batch comes, or together with it.
    """

    def __init__(
        self, query: str, *epochs: Sequence[Sequence[Any]], of_batches: bool = False
    ) -> None:
        self.query = query
        self.epochs = epochs
        self.of_batches = of_batches

    def __repr__(self) -> str:
        return f"CheckEpochs({self.query!r}, {', '.join(map(repr, self.epochs))})"

    def play(self, stage: Stage) -> None:
        first = stage.checked.get(self.query, 0) + 1
        last = stage.checked[self.query] = stage.last_epoch()
        numbers = list(range(first, last + 1))
        if self.of_batches:
            intents = stage.intents()
            numbers = [number for number in numbers if intents[number - 1]["batches"]]
        assert len(numbers) == len(self.epochs), f"epochs {numbers} ran"
        for number, rows in zip(numbers, self.epochs, strict=True):
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
class WaitUntil(Step):
    """Wait for something that a running engine does by itself."""

    what: str
    test: Callable[[Stage], bool]

    def play(self, stage: Stage) -> None:
        stage.wait_until(lambda: self.test(stage), self.what)


@dataclass(frozen=True)
class ExpectError(Step):
    """A step that must fail, in one line, with this condition and these words."""

    step: Step
    condition: str
    words: str

    def play(self, stage: Stage) -> None:
        check_error(refused(lambda: self.step.play(stage)), self.condition, self.words)


def refused(action: Callable[[], object]) -> HeadraceError:
    """The error of ours that an action ends in."""
    try:
        action()
    except HeadraceError as error:
        return error
    raise AssertionError("it was not refused")


def check_error(error: BaseException | None, condition: str, *words: str) -> None:
    """Fail unless this is one of our errors: one line, this condition, these words."""
    assert isinstance(error, HeadraceError), f"not one of our errors: {error!r}"
    text = str(error)
    assert error.condition == condition, text
    assert text.startswith(f"{condition}: "), text
    assert "\n" not in text, text
    for part in words:
        assert part in text, f"{part!r} is not in {text!r}"


def play(
    spark: SparkSession,
    folder: Path,
    streams: Sequence[Stream],
    *steps: Step,
    tables: Mapping[str, DataFrame] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Stage:
    """Play a script; a step that fails is named, with all that is known of the engine."""
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
        stage.hr.stop()
    return stage


def _script_text(steps: Sequence[Step], failed: int) -> str:
    marks = ["=> " if i == failed else "   " for i in range(len(steps))]
    return "\n".join(["the script:", *(f"{m}{s}" for m, s in zip(marks, steps, strict=True))])
