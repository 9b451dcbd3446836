"""Streams that are made to deceive: early aggregation is soon right again, and never ruinous.

Keys of two streams come in phases, each of which turns around what the one before it taught. The
work of each epoch (rows that are stored, grouped, joined and that come out, each for what it takes)
is compared with that of every fixed choice.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path

import pytest

from headrace.cost.early_aggregation import Tuning
from headrace.engine.epochs import attempt
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.choices import Choices
from headrace.planner.joined_sets import SetJoinRun
from headrace.planner.statistics import RuntimeStatistics
from headrace.sql import plan_query
from headrace.stats.load import SetWork
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor
from tests.support.oracle import run_epochs
from tests.support.streams import Row

BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
COLUMNS = Schema.of([*((name, BIGINT) for name in ("k", "g", "v")), ("ts", TIMESTAMP)])
CATALOG: dict[str, Source | Table] = {name: Source(name, COLUMNS, "ts") for name in "ab"}
COMMON = (
    "SELECT a.g, window, count(*) AS n FROM a JOIN b ON a.k = b.k AND "
    "window(a.ts, '10 seconds') = window(b.ts, '10 seconds') "
    "GROUP BY a.g, window(a.ts, '10 seconds')"
)
MOVING = (
    "SELECT a.g, window, count(*) AS n, max(a.v) AS most FROM a JOIN b ON a.k = b.k "
    "GROUP BY a.g, trailing(a.ts, '60 seconds'), trailing(b.ts, '60 seconds')"
)
SECONDS, LENGTH = 10, 5
TUNING = Tuning()

#: A row's key, group and value.
Kind = Callable[[int], tuple[int, int, int]]


def few(row: int) -> tuple[int, int, int]:
    return row % 5, row % 3, row


def many(row: int) -> tuple[int, int, int]:
    """A key and a group that no other row of the stream has."""
    return row, row, row


def hot(row: int) -> tuple[int, int, int]:
    """Nearly half of the rows have one key and one group, the others each its own: numbers of keys
    tell neither that grouping pays, nor how many rows would come out without."""
    return (0, 0, row) if row % 9 < 4 else (row, row, row)


def hot_in_many_groups(row: int) -> tuple[int, int, int]:
    """One key has nearly half of the rows, which are of as many groups."""
    return (0, row, row) if row % 9 < 4 else (row, row, row)


def apart(row: int) -> tuple[int, int, int]:
    return -1 - row % 5, row % 3, row


#: What comes of each stream.
PHASES: Mapping[str, tuple[Kind, Kind]] = {
    "few": (few, few),
    "hot": (hot, hot),
    "many": (many, many),
    "hot again": (hot, hot),
    "few, which do not meet": (few, apart),
    "hot in many groups": (hot_in_many_groups, hot),
    "many of one and few of the other": (many, few),
}


def epochs_of(
    phases: Sequence[tuple[Kind, Kind]], rows: int, length: int = LENGTH
) -> list[dict[str, list[Row]]]:
    epochs: list[dict[str, list[Row]]] = []
    for number in range(len(phases) * length):
        epoch: dict[str, list[Row]] = {}
        for name, kind in zip("ab", phases[number // length], strict=True):
            epoch[name] = []
            for place in range(rows):
                k, g, v = kind(number * rows + place)
                second = SECONDS * (number + place / rows)
                at = BEGIN + datetime.timedelta(seconds=second)
                epoch[name].append({"k": k, "g": g, "v": v, "ts": at})
        epochs.append(epoch)
    return epochs


@dataclass
class Seen:
    """What was done in each epoch, and what was said of changes."""

    work: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)
    early: list[frozenset[int]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def run(
    sql: str,
    epochs: list[dict[str, list[Row]]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    checked: bool = False,
) -> Seen:
    seen = Seen()
    learn = attempt.learn_set_joins

    def learn_set_joins(
        runs: Sequence[SetJoinRun],
        work: Mapping[str, SetWork],
        number: int,
        statistics: RuntimeStatistics,
        choices: Choices,
    ) -> None:
        seen.work.append(seconds_of(runs, work, len(epochs[number - 1]["a"])))
        seen.results.append(sum(one.results or 0 for one in runs))
        seen.stored.append(sum(done.stored for done in work.values()))
        seen.early += [one.inputs for one in choices.early.values()]
        learn(runs, work, number, statistics, choices)

    plan = optimize(plan_query(sql, CATALOG).plan).plan
    with monkeypatch.context() as patched:
        patched.setattr(attempt, "learn_set_joins", learn_set_joins)
        ran = run_engine(
            task_executor(**{"tasks.rows": "1000000"}),
            {"q": (plan, OutputMode.APPEND)},
            CATALOG,
            epochs,
            {},
            folder,
        )
    if checked:
        for actual, wanted in zip(ran.rows["q"], run_epochs(plan, epochs), strict=True):
            assert_same_rows(actual, wanted)
    seen.changes = [f"{n}: {c}" for n, report in enumerate(ran.reports) for c in report.changes]
    return seen


def seconds_of(runs: Sequence[SetJoinRun], work: Mapping[str, SetWork], came: int) -> float:
    """What an epoch did, by what each row takes; rows that are in no set are stored as they are."""
    seconds = TUNING.update * came * (2 - len(work))
    for done in work.values():
        seconds += TUNING.update * done.stored + TUNING.group * done.grouped
    for joined in runs:
        assert joined.results is not None
        seconds += TUNING.probe * sum(joined.rows) + TUNING.pair * joined.results
    return seconds


def held_of(epoch: Mapping[str, list[Row]], early: frozenset[int]) -> list[list[tuple[int, int]]]:
    """Keys and groups of what is stored of each stream; of the second nothing is asked but its
    key."""
    rows = [[(row["k"], row["g"] if name == "a" else 0) for row in epoch[name]] for name in "ab"]
    return [[*dict.fromkeys(one)] if index in early else one for index, one in enumerate(rows)]


def pairs_of(epoch: Mapping[str, list[Row]], early: frozenset[int]) -> tuple[int, int]:
    """Rows that come out of the join of an epoch's window, and that go in."""
    keys = [Counter(key for key, _ in rows) for rows in held_of(epoch, early)]
    return sum(count * keys[1][key] for key, count in keys[0].items()), sum(
        one.total() for one in keys
    )


def work_of(epoch: Mapping[str, list[Row]], early: frozenset[int]) -> float:
    """The work of an epoch whose window is as long, counted by hand."""
    pairs, held = pairs_of(epoch, early)
    grouped = sum(len(epoch["ab"[index]]) for index in early)
    return (TUNING.update + TUNING.probe) * held + TUNING.group * grouped + TUNING.pair * pairs


CHOICES = [frozenset(c) for c in chain(*(combinations((0, 1), count) for count in range(3)))]


def test_at_most_twice_the_work_of_the_best_choice_after_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = list(PHASES)
    epochs = epochs_of([*PHASES.values()], 900)
    seen = run(COMMON, epochs, tmp_path, monkeypatch)
    fixed = {early: [work_of(epoch, early) for epoch in epochs] for early in CHOICES}
    far = dict.fromkeys(CHOICES, 0.0)
    for number in range(1, len(epochs)):
        early, before = seen.early[number], seen.early[number - 1]
        if early == before:
            # What is counted by hand is what the engine did, and joined when the window closed.
            assert seen.results[number] == pairs_of(epochs[number - 1], early)[0]
            assert seen.stored[number] == sum(map(len, held_of(epochs[number], early)))
    for place, phase in enumerate(phases):
        later = range(place * LENGTH + 1, (place + 1) * LENGTH)
        works = {early: sum(work[n] for n in later) for early, work in fixed.items()}
        best = min(works.values())
        far = {early: max(far[early], works[early] / best) for early in CHOICES}
        taken = sum(fixed[seen.early[n]][n] for n in later)
        assert taken <= 2 * best, (phase, taken / best, seen.changes)
    # No fixed choice is right in all phases, and nothing early is ruinous.
    assert min(far.values()) > 1.2
    assert far[frozenset()] > 4
    assert len(seen.changes) >= 3


def test_extremes_that_leave_a_window_are_paid_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups are few enough to be worth aggregating, but their greatest values leave the window in
    every epoch and are looked for among all of its rows: no figure of the cost model says so."""

    def falling(row: int) -> tuple[int, int, int]:
        return row % 150, row % 3, -row

    def rising(row: int) -> tuple[int, int, int]:
        return row % 150, row % 3, row

    phases, length = [(rising, rising), (falling, falling)], 9
    epochs = epochs_of(phases, 300, length)
    seen = run(MOVING, epochs, tmp_path, monkeypatch, checked=True)
    for place in range(len(phases)):
        later = range(place * length + 1, (place + 1) * length)
        late = sum(late_work_of(epochs, number) for number in later)
        assert sum(seen.work[number] for number in later) <= 2 * late, (place, seen.changes)
    assert seen.early[length - 1] == {0, 1}
    (regret,) = [change for change in seen.changes if "again (was a, b, which took" in change]
    # Once is enough: it is believed for as long as nothing speaks against it.
    assert {0, 1} not in seen.early[int(regret.split(":")[0]) + 1 :]


def late_work_of(epochs: list[dict[str, list[Row]]], number: int) -> float:
    """Aggregating nothing early in windows of six epochs, the last of which lacks its last row."""
    held = [
        Counter(
            row["k"] for epoch in epochs[max(0, number - 5) : number + 1] for row in epoch[name]
        )
        for name in "ab"
    ]
    pairs = sum(count * held[1][key] for key, count in held[0].items())
    seconds = TUNING.update * sum(len(epochs[number][name]) for name in "ab")
    return seconds + TUNING.probe * sum(one.total() for one in held) + TUNING.pair * pairs
