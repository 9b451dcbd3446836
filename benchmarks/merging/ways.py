"""One query set, merged in several ways: what each shares, how long it takes, and if it is right.

Times hold for queries that are read already. All strategies plan the same queries in one process,
in turns that go back and forth, after one has gone through all of them: plans compute their columns
when they are first asked for, and nobody in particular should pay for that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.harness.report import Setup
from benchmarks.merging.query_sets import GeneratedQuery
from headrace.merge import GlobalPlan, MergeStrategy, Scope
from headrace.merge.solver import SOLVER_STEPS
from headrace.native.compare import Case
from headrace.plan.nodes import Sink

#: A run that takes longer than these seconds is not repeated: noise is a small part of it.
LONG = 5.0
#: Queries that every strategy plans once before the clock runs.
WARM_UP = 200
CLOCK = "milliseconds per query"
SHARED = "operators shared, %"


@dataclass(frozen=True)
class Way:
    """A strategy, and how it is set."""

    strategy: MergeStrategy
    solver_steps: int = SOLVER_STEPS
    source_index: bool = True

    @property
    def name(self) -> str:
        solver = "" if self.solver_steps else ", no solver"
        return f"{self.strategy.value}{solver}{'' if self.source_index else ', no index'}"

    def empty_plan(self, scope: Scope) -> GlobalPlan:
        return GlobalPlan(
            self.strategy,
            scope,
            unbounded=True,
            solver_steps=self.solver_steps,
            use_source_index=self.source_index,
        )


HB, HB_PLUS = Way(MergeStrategy.HB), Way(MergeStrategy.HB_PLUS)
SM, SM_PLUS, SM_BU = Way(MergeStrategy.SM), Way(MergeStrategy.SM_PLUS), Way(MergeStrategy.SM_BU)
NO_SOLVER = replace(SM, solver_steps=0)
#: Structural analysis compares with one query after the other, and is for whole queries only.
WAYS = {
    Scope.COMPLETE: (HB, HB_PLUS, Way(MergeStrategy.STRUCTURAL), SM, SM_PLUS, SM_BU),
    Scope.PARTIAL: (HB, HB_PLUS, SM, SM_PLUS, SM_BU),
}


@dataclass(frozen=True)
class QuerySet:
    """Queries, and the class of each: those of other classes mean something else.

    Without ``classes`` it is not known which mean the same.
    """

    queries: Sequence[Sink]
    classes: Sequence[Hashable] | None = None

    @classmethod
    def of(cls, generated: Sequence[GeneratedQuery], known: bool = True) -> QuerySet:
        sinks = [query.sink for query in generated]
        classes = [q.sink.name if q.group is None else q.group for q in generated]
        return cls(sinks, classes if known else None)


@dataclass(frozen=True)
class Planned:
    """A set that was planned in one way: what is shared, how long it took, and what is equal."""

    queries: int
    shared: float
    seconds: float
    classes: Sequence[int]

    @property
    def milliseconds(self) -> float:
        return 1_000 * self.seconds / self.queries

    def to_json(self) -> dict[str, float]:
        return {
            SHARED: round(self.shared, 2),
            "seconds": round(self.seconds, 4),
            CLOCK: round(self.milliseconds, 4),
            "classes": len(set(self.classes)),
        }


# --- one set, all ways ---------------------------------------------------------------------------


def planned(given: QuerySet, ways: Sequence[Way], scope: Scope, repeats: int) -> dict[Way, Planned]:
    """Plan a set in each of the ways, in turns; seconds are medians."""
    add_all(NO_SOLVER.empty_plan(scope), given.queries)
    for way in ways:
        add_all(way.empty_plan(scope), given.queries[:WARM_UP])
    seconds: dict[Way, list[float]] = {way: [] for way in ways}
    found: dict[Way, tuple[float, list[int]]] = {}
    for turn in range(repeats):
        for way in ways if turn % 2 == 0 else reversed(ways):
            if any(run > LONG for run in seconds[way]):
                continue
            plan = way.empty_plan(scope)
            gc.collect()
            seconds[way].append(add_all(plan, given.queries))
            found[way] = plan.sharing_efficiency, classes_of(plan, given.queries)
    return {
        way: Planned(len(given.queries), shared, median(seconds[way]), classes)
        for way, (shared, classes) in found.items()
    }


def add_all(plan: GlobalPlan, queries: Sequence[Sink]) -> float:
    started = time.perf_counter()
    for query in queries:
        plan.add(query)
    return time.perf_counter() - started


def classes_of(plan: GlobalPlan, queries: Sequence[Sink]) -> list[int]:
    """The operator that feeds each query: queries with the same one were found equal."""
    return [plan.root(query.name).number for query in queries]


def difference(given: QuerySet, found: Mapping[Way, Planned]) -> str | None:
    """What is wrong about the classes that were found, or nothing.

    No strategy may call queries of different classes equal. And what is written alike means the
    same, so merging by meaning must find whatever sorted text does.
    """
    if given.classes is not None:
        for way, one in found.items():
            if not is_finer(one.classes, given.classes):
                return f"{way.name} merges queries that mean different things"
    written = found.get(HB_PLUS)
    for way in (SM, SM_PLUS):
        ours = found.get(way)
        if written and ours and not is_finer(written.classes, ours.classes):
            return f"{way.name} does not find all that {HB_PLUS.name} finds"
    return None


def is_finer(finer: Sequence[Hashable], coarser: Sequence[Hashable]) -> bool:
    """Whether those that are of one class are of one class in the other division too.

    >>> is_finer([1, 1, 2], ["a", "a", "a"]), is_finer([1, 1, 2], ["a", "b", "b"])
    (True, False)
    """
    seen: dict[Hashable, Hashable] = {}
    return all(seen.setdefault(a, b) == b for a, b in zip(finer, coarser, strict=True))


# --- many sets, one after the other --------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """Query sets along an axis, and the ways in which they are planned."""

    part: str
    axis: str
    at: tuple[int, ...]
    make: Callable[[int], QuerySet]
    ways: Sequence[Way]
    scope: Scope


#: What was found at each point of an axis.
Points = Mapping[int, Mapping[Way, Planned]]


def swept(setup: Setup, repeats: int, sweep: Sweep) -> tuple[Case, Points]:
    """Plan sets along an axis; the seconds and percentages of the case are those of the last."""
    part, axis, ways, scope = sweep.part, sweep.axis, sweep.ways, sweep.scope
    points: dict[int, dict[Way, Planned]] = {}
    wrong = None
    # One set at a time: the garbage collector would look through the others again and again.
    for at in sweep.at:
        given = sweep.make(at)
        points[at] = planned(given, ways, scope, repeats)
        wrong = wrong or difference(given, points[at])
        for way, one in points[at].items():
            setup.say(
                f"{part}/{scope.value}, {axis} {at}: {way.name} shares {one.shared:.2f} % of "
                f"{one.queries:,} queries, {one.milliseconds:.3f} ms each"
            )
    last = points[sweep.at[-1]]
    count = last[ways[0]].queries
    notes: dict[str, Any] = {
        "points": {
            str(at): {"queries": found[ways[0]].queries}
            | {way.name: one.to_json() for way, one in found.items()}
            for at, found in points.items()
        },
        "series": {
            "x": axis,
            "y": CLOCK,
            "at": list(points),
            "lines": {
                way.name: [round(found[way].milliseconds, 4) for found in points.values()]
                for way in ways
            },
        },
        "bars": {
            SHARED: {
                "x": axis,
                "y": SHARED,
                "groups": [str(at) for at in points],
                "bars": {
                    way.name: [round(found[way].shared, 2) for found in points.values()]
                    for way in ways
                },
            }
        },
        **({} if wrong is None else {"difference": wrong}),
    }
    case = Case(
        f"{part}/{scope.value}/{count:,} queries",
        wrong is None,
        count,
        {way.name: one.seconds for way, one in last.items()},
        {f"{way.name}, {SHARED}": one.shared for way, one in last.items()},
        notes,
    )
    return case, points


def growth(points: Points, few: int, many: int) -> dict[Way, float]:
    """How many times longer a query takes at one point than at another."""
    return {
        way: one.milliseconds / points[few][way].milliseconds for way, one in points[many].items()
    }
