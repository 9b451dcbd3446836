"""The bucket executor: runs definitions in DuckDB inside Spark tasks.

Spark schedules, distributes and retries; a task opens the files that it needs itself. All writes
that are asked for together and that can run here run in one Spark job; where they are few rows, the
same kernel runs them in this process, in less time than a job takes to begin. What cannot run here
is left to the Spark executor, with the reason.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlparse

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from headrace.engine.checkpoint import processes
from headrace.engine.checkpoint.files import Files, is_local, plain_path
from headrace.engine.checkpoint.hadoop_files import OBJECT_STORES
from headrace.engine.execution.duckdb import (
    join_profile,
    kernel,
    local_index,
    probe_kernel,
    probe_samples,
    remote_files,
)
from headrace.engine.execution.duckdb.answers import Answers
from headrace.engine.execution.duckdb.calendars import reads_clocks
from headrace.engine.execution.duckdb.pieces import (
    Cutter,
    TaskPiece,
    attempts,
    best_cut,
    outputs,
    task_specs,
)
from headrace.engine.execution.duckdb.remote_files import store_of
from headrace.engine.execution.duckdb.splits import Cut
from headrace.engine.execution.duckdb.stores import Stores, Trial
from headrace.engine.execution.duckdb.translation import Translated, translate
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.engine.execution.spark_errors import one_line
from headrace.errors import HeadraceError, QueryError
from headrace.operators.inputs import Inputs, all_paths
from headrace.operators.write import Write, Written, WrittenFile
from headrace.settings import Settings

# The kernel travels with the job, so that executors need not have this package installed.
for module in (
    kernel,
    join_profile,
    probe_kernel,
    probe_samples,
    local_index,
    remote_files,
    processes,
):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

#: Tasks that try a store: it need not be all of a large cluster.
_TRIALS = 16


@dataclass(frozen=True)
class TaskOutcome:
    """What came of offering a write to this executor; without ``written`` Spark must do it."""

    text: str
    written: Written | None = None


#: Names of the time zone in which tasks take times apart.
_UTC = ("UTC", "Etc/UTC", "GMT", "+00:00", "Z", "Etc/GMT")


@dataclass
class Learnt:
    """What was found out while writes ran: which stores tasks reach, and what failed in them.

    What ``failed`` once, by label, is Spark's from then on.
    """

    stores: Stores
    failed: dict[str, str] = field(default_factory=dict)


class BucketExecutor:
    """Runs the writes that it can."""

    def __init__(
        self,
        session: SparkSession,
        settings: Settings,
        inputs: Inputs,
        learnt: Learnt | None = None,
    ) -> None:
        self._session = session
        self._settings = settings
        self._inputs = inputs
        self._files = Files(session)
        self._tasks = session.sparkContext.defaultParallelism
        self._cutter = Cutter(settings, self._tasks)
        self._never = _why_never(session, settings)
        self._in_utc = session.conf.get("spark.sql.session.timeZone", None) in _UTC
        self.learnt = learnt or Learnt(Stores(session))
        self._sizes: dict[str, int] = {}
        self._asked: set[str | None] = set()
        self.jobs = 0
        if self._never is None:
            _use_this_python(session)

    def begin_epoch(self) -> None:
        self._sizes.clear()
        self.jobs = 0

    def write_all(self, writes: Sequence[Write]) -> dict[int, TaskOutcome]:
        """Run what can run here, in one job; an outcome for each write, by position."""
        outcomes: dict[int, TaskOutcome] = {}
        pieces: list[TaskPiece] = []
        for index, write in enumerate(writes):
            try:
                translated = self._translated(write, write.label)
                self._check_stores(translated, self._tried)
                cut = self._cutter.pieces(index, translated)
                self._make_folders(cut)
                pieces += cut
            except Untranslatable as reason:
                outcomes[index] = TaskOutcome(f"Spark, because of {reason}")
            except (HeadraceError, OSError) as error:
                if isinstance(error, QueryError):
                    # A package is missing, which is no single query's trouble.
                    raise
                # A folder that cannot be made is one query's trouble; Spark will say what it is.
                outcomes[index] = TaskOutcome(f"Spark, because of {one_line(error)}")
        if pieces:
            outcomes |= self._run(pieces)
        return outcomes

    def parts_of_indexes(self, rows: int) -> int:
        """Into how many parts the indexes of a join are cut that hold so many rows."""
        return self._cutter.parts_of_indexes(rows)

    def forget_indexes(self, run: str) -> None:
        """Delete the indexes that a run left on the executors, as far as these can be reached."""
        if self._never is not None:
            return
        context = self._session.sparkContext
        tasks = range(self._tasks)
        context.parallelize(tasks, self._tasks).foreach(local_index.forgetting(run))

    def verdict(self, write: Write, label: str) -> str:
        """Who would run a write of this label, if there were many rows; nothing is tried."""
        try:
            translated = self._translated(write, label)
            self._check_stores(translated, None)
            self._asked |= {store_of(path) for path in [*_read(translated), write.path or ""]}
        except Untranslatable as reason:
            return f"Spark, because of {reason}"
        cut = best_cut(translated, 2)
        if cut is None:
            return f"DuckDB in one task, up to {self._settings.whole_rows} rows; above, Spark"
        return f"DuckDB in tasks, {_text(cut)}"

    @property
    def untried(self) -> list[str]:
        """The stores of what a verdict was asked for that no task has tried to reach yet."""
        return [store for store in self.learnt.stores.untried() if store in self._asked]

    def _translated(self, write: Write, label: str) -> Translated:
        reason = self._never or self.learnt.failed.get(label)
        if reason is not None:
            raise Untranslatable(reason)
        if not self._in_utc:
            queries = [write.query] if write.inner is None else [write.query, write.inner.query]
            if any(map(reads_clocks, queries)):
                raise Untranslatable("a time of day, which is that of the session's time zone")
        return translate(write, self._inputs, self._size)

    def _check_stores(self, translated: Translated, trial: Trial | None) -> None:
        path = translated.write.path
        read = _read(translated)
        self.learnt.stores.check(read, [] if path is None else [path], trial)

    def _tried(self, spec: Mapping[str, Any]) -> str | None:
        """Have as many tasks as run at once try a store; why one of them cannot reach it."""
        context = self._session.sparkContext
        tasks = min(self._tasks, _TRIALS)
        try:
            self.jobs += 1
            reasons = (
                context.parallelize([spec] * tasks, tasks).map(remote_files.try_store).collect()
            )
        except Exception as error:
            self._raise_if_lacking(error)
            return one_line(error)
        return next((reason for reason in reasons if reason is not None), None)

    def _size(self, path: str) -> int:
        """The bytes of a file of a batch; 0 where that cannot be known."""
        if path not in self._sizes:
            self._sizes[path] = 0
            with suppress(Exception):
                self._sizes[path] = self._files.of(path).size(path)
        return self._sizes[path]

    def _make_folders(self, pieces: list[TaskPiece]) -> None:
        for folder in {output["folder"] for piece in pieces for output in outputs(piece)}:
            # In object stores there are none: they are seen when there is something in them.
            if folder is not None and urlparse(folder).scheme not in OBJECT_STORES:
                self._files.of(folder).make_folder(folder)

    def _run(self, pieces: list[TaskPiece]) -> dict[int, TaskOutcome]:
        """All pieces, by this process where they are few rows, or else by a job."""
        if not self._are_small(pieces):
            return self._run_in_tasks(pieces)
        outcomes = self._run_here(pieces)
        # Whatever is wrong with them here, tasks may know better, and Spark has the last word.
        others = [piece for piece in pieces if piece.index not in outcomes]
        return outcomes | self._run_in_tasks(others) if others else outcomes

    def _are_small(self, pieces: list[TaskPiece]) -> bool:
        """Whether a job would take longer to begin than the pieces take to do."""
        total = 0
        for translated in {piece.index: piece.translated for piece in pieces}.values():
            # Indexes are kept where tasks are.
            if translated.probed or translated.rows is None:
                return False
            if not all(map(is_local, [*_read(translated), translated.write.path or ""])):
                return False
            total += max(translated.rows, translated.write.expected_rows or 0)
        return total < self._settings.task_least_rows

    def _run_here(self, pieces: list[TaskPiece]) -> dict[int, TaskOutcome]:
        """Do what tasks would do in this process; what fails is left out."""
        (spec,) = task_specs(pieces, 1, self._settings.task_memory)
        spec["folder"] = getattr(self._session.sparkContext, "_temp_dir", None)
        answers = {piece.index: Answers(piece) for piece in pieces}
        try:
            answered = kernel.run_task(spec)["answers"]
        except Exception:
            return {}
        for answer in answered:
            answers[answer["write"]].add(answer)
        outcomes = {}
        for index, given in answers.items():
            if given.error is None:
                outcomes[index] = self._outcome(given)
                continue
            for file in given.files:
                self._files.of(file.path).delete(file.path)
        return outcomes

    def _run_in_tasks(self, pieces: list[TaskPiece]) -> dict[int, TaskOutcome]:
        """The job: all pieces, shared out to as many tasks as run at once."""
        specs = task_specs(pieces, self._tasks, self._settings.task_memory)
        for spec in specs:
            spec["stores"] = self.learnt.stores.accesses()
        answers = {piece.index: Answers(piece) for piece in pieces}
        try:
            self.jobs += 1
            context = self._session.sparkContext
            by_task = context.parallelize(specs, len(specs)).map(kernel.run_task).collect()
        except Exception as error:
            self._raise_if_lacking(error)
            words = self.learnt.stores.hidden(one_line(error))
            return dict.fromkeys(answers, TaskOutcome(f"Spark, because the tasks failed: {words}"))
        unreachable: dict[str, str] = {}
        for task in by_task:
            if "missing" in task:
                raise _lacking(task["missing"])
            for answer in task["answers"]:
                if "store" in answer:
                    unreachable[answer["store"]] = answer["error"]
                answers[answer["write"]].add(answer)
                for name, learnt in answer.get("probes", {}).items():
                    self._inputs.learn(name, learnt)
        for store, reason in unreachable.items():
            self.learnt.stores.failed(store, reason)
        return {index: self._outcome(given) for index, given in answers.items()}

    def _raise_if_lacking(self, error: Exception) -> None:
        missing = re.search(r"No module named '(\w+)'", str(error))
        if missing is not None:
            raise _lacking(missing[1]) from error

    def _outcome(self, answers: Answers) -> TaskOutcome:
        write, cut = answers.piece.translated.write, answers.piece.cut
        if answers.error is not None:
            for file in answers.files:
                self._files.of(file.path).delete(file.path)
            # Spark decides whether it is an error, and says so in its own words.
            if not answers.unreachable:
                self.learnt.failed[write.label] = answers.error
            return TaskOutcome(f"Spark, because of {answers.error}")
        written = answers.written()
        self._inputs.note_joined(answers.joined)
        if write.folder:
            written = replace(written, files=self._published(write, written.files))
        return TaskOutcome(
            "DuckDB in one task" if cut is None else f"DuckDB, {_text(cut)}", written
        )

    def _published(self, write: Write, files: Sequence[WrittenFile]) -> tuple[WrittenFile, ...]:
        """Move what the tasks that count have written to where it belongs, and nothing else."""
        assert write.path is not None
        target = plain_path(write.path)
        system = self._files.of(target)
        moved = []
        for number, file in enumerate(files):
            moved.append(replace(file, path=f"{target}/part-{number}.parquet"))
            system.move(file.path, moved[-1].path)
        system.delete(attempts(target))
        return tuple(moved)


def _read(translated: Translated) -> list[str]:
    """The files that a write reads."""
    return [path for source in translated.inputs.values() for path in all_paths(source)]


def _lacking(package: str) -> QueryError:
    return QueryError(
        f"the Spark executors lack the Python package {package}",
        hint="install it there, or set spark.headrace.executor=spark",
        condition="MISSING_PACKAGE",
    )


def _why_never(session: SparkSession, settings: Settings) -> str | None:
    if settings.executor == "spark":
        return "the setting spark.headrace.executor"
    if str(session.conf.get("spark.sql.ansi.enabled", "true")).lower() != "true":
        return "spark.sql.ansi.enabled=false: what overflows means something else in DuckDB"
    return None


def _use_this_python(session: SparkSession) -> None:
    """Have local workers run the interpreter of the driver, unless somebody chose another."""
    context = session.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen and str(context.master).startswith("local"):
        context.pythonExec = sys.executable


def _text(cut: Cut) -> str:
    columns = sorted({column for _, column in cut.columns if column is not None})
    return f"in parts by {', '.join(columns)}" if columns else "in parts of any rows"
