"""Whether the queries of a set give together what each gives alone, and the smallest set that
does not.

What a query is owed is said by the oracle where it was there from the start, and by the engine
that runs it alone where it joined late; then both have the streams kept going from the start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from headrace.settings import Settings, read_settings
from tests.support.compare import assert_same_rows
from tests.support.oracle import run_epochs
from tests.support.query_sets import QuerySet
from tests.support.stepped_engine import Answer, Circumstances, Member, run_members
from tests.support.streams import Row
from tests.support.tally import Tally

#: What a query has around it that runs alone: nothing that could go wrong by sharing.
ALONE = {"merge.strategy": "none", "tasks.buckets": "1", "joins.passes": "whole"}


@dataclass(frozen=True)
class Stage:
    """Where sets run: a session, and the executors that a set goes on by in turn."""

    spark: SparkSession
    executors: tuple[str, ...] = ("buckets",)

    def settings(self, chosen: dict[str, str]) -> tuple[Settings, ...]:
        keys = {f"spark.headrace.{key}": value for key, value in chosen.items()}
        return tuple(
            read_settings({**keys, "spark.headrace.executor": executor})
            for executor in self.executors
        )


@dataclass
class Verdict:
    """How a set ended."""

    tally: Tally = field(default_factory=lambda: Tally(sets=1))
    #: What went wrong, by the key of the query, or of the whole set.
    faults: dict[str, str] = field(default_factory=dict)


def judge(queries: QuerySet, stage: Stage, alone: bool) -> Verdict:
    """Run a set; with ``alone`` each of its queries also by itself."""
    verdict = Verdict()
    together = _together(queries, stage, verdict)
    for member in queries.compared:
        owed = {}
        if not member.joins_after:
            owed["the oracle says"] = _oracle(queries, member)
        if alone or member.joins_after:
            owed["it gives alone"] = _alone(queries, stage, member)
        expected = next(iter(owed.values()))
        if not member.joins_after:
            # Who joins late may see no window close, and is compared all the same.
            verdict.tally.add(sum(map(len, expected.values())))
        answers = together.get(member.key)
        if answers is None:
            continue
        for who, wanted in owed.items():
            fault = _difference(member, answers, wanted, who)
            if fault is not None:
                verdict.faults.setdefault(member.key, fault)
    return verdict


def _together(queries: QuerySet, stage: Stage, verdict: Verdict) -> dict[str, dict[int, Answer]]:
    sharing = {"merge.sharedRows": "0"} if queries.holds else {}
    around = Circumstances(stage.settings({**dict(queries.settings), **sharing}), queries.restarts)
    with TemporaryDirectory() as folder:
        try:
            return run_members(stage.spark, queries.members, queries.streams, Path(folder), around)
        except Exception as error:
            verdict.faults["the set"] = f"it fails: {type(error).__name__}: {error}"
            return {}


def _alone(queries: QuerySet, stage: Stage, member: Member) -> dict[int, Answer]:
    keepers = queries.keepers if member.joins_after else []
    around = Circumstances(stage.settings(ALONE))
    with TemporaryDirectory() as folder:
        members = [*keepers, replace(member, name="")]
        return run_members(stage.spark, members, queries.streams, Path(folder), around)[member.key]


def _oracle(queries: QuerySet, member: Member) -> dict[int, Answer]:
    streams = queries.streams
    epochs = [{name: list(rows) for name, rows in epoch.items()} for epoch in streams.epochs]
    tables = {name: list(rows) for name, rows in streams.tables.items()}
    answers = run_epochs(queries.plan(member), epochs, tables, member.mode)
    return {n: rows for n, rows in enumerate(answers, 1) if member.takes_part(n)}


def _difference(
    member: Member, answers: dict[int, Answer], wanted: dict[int, Answer], who: str
) -> str | None:
    for epoch in sorted({*answers, *wanted}):
        try:
            assert_same_rows(answers.get(epoch, []), wanted.get(epoch, []))
        except AssertionError as error:
            return f"epoch {epoch} of {member.key} is not what {who}: {error}"
    return None


# --- smaller sets --------------------------------------------------------------------------------


def shrunk(queries: QuerySet, stage: Stage, seconds: float) -> tuple[QuerySet, Verdict]:
    """A smaller set in which some of the same queries fail, as small as is found in this time."""
    end = time.monotonic() + seconds
    verdict = judge(queries, stage, alone=False)
    whose = set(verdict.faults)
    for smaller_by in (_without_queries, _in_peace, _without_batches, _without_rows):
        going_on = True
        while going_on:
            going_on = False
            for smaller in smaller_by(queries):
                if time.monotonic() > end:
                    return queries, verdict
                found = judge(smaller, stage, alone=False)
                if whose & set(found.faults):
                    queries, verdict, going_on = smaller, found, True
                    break
    return queries, verdict


def _without_queries(queries: QuerySet) -> Iterator[QuerySet]:
    for member in queries.compared:
        rest = tuple(m for m in queries.members if m is not member)
        if any(not m.joins_after for m in rest):
            yield replace(queries, members=rest)
    if queries.keepers and not any(m.joins_after for m in queries.members):
        yield replace(queries, members=tuple(queries.compared))


def _in_peace(queries: QuerySet) -> Iterator[QuerySet]:
    """Without restarts, and with the usual settings; nobody leaves."""
    if queries.restarts:
        yield replace(queries, restarts=frozenset())
    if queries.holds:
        yield replace(queries, holds=False)
    if queries.settings:
        yield replace(queries, settings={})
    for key in queries.settings:
        yield replace(queries, settings={k: v for k, v in queries.settings.items() if k != key})
    for index, member in enumerate(queries.members):
        if member.leaves_after is not None:
            stays = replace(member, leaves_after=None)
            members = (*queries.members[:index], stays, *queries.members[index + 1 :])
            yield replace(queries, members=members)


def _without_batches(queries: QuerySet) -> Iterator[QuerySet]:
    epochs = queries.streams.epochs
    for number, epoch in enumerate(epochs):
        if any(epoch.values()):
            yield _with_rows(queries, {(number, name): [] for name in epoch})
    for name in {name for epoch in epochs for name in epoch}:
        if any(epoch[name] for epoch in epochs):
            yield _with_rows(queries, {(number, name): [] for number in range(len(epochs))})
    for number, epoch in enumerate(epochs):
        for name, rows in epoch.items():
            if rows:
                yield _with_rows(queries, {(number, name): []})


def _without_rows(queries: QuerySet) -> Iterator[QuerySet]:
    for number, epoch in enumerate(queries.streams.epochs):
        for name, rows in epoch.items():
            for dropped in _fewer(len(rows)):
                left = [row for index, row in enumerate(rows) if index not in dropped]
                yield _with_rows(queries, {(number, name): left})


def _with_rows(queries: QuerySet, changed: Mapping[tuple[int, str], Sequence[Row]]) -> QuerySet:
    streams = queries.streams
    epochs = [
        {name: changed.get((number, name), rows) for name, rows in epoch.items()}
        for number, epoch in enumerate(streams.epochs)
    ]
    return replace(queries, streams=replace(streams, epochs=epochs))


def _fewer(count: int) -> Iterator[range]:
    """Each half of some rows, each one of them."""
    if count > 3:
        yield range(count // 2)
        yield range(count // 2, count)
    if count > 1:
        for index in range(count):
            yield range(index, index + 1)
