"""Merging without running: how much is shared, and how long it takes to find out.

After Sections 8.2 and 8.3 of the query-merging paper. Sharing efficiency is the paper's: of all
operators that queries have, sources and sinks among them, the percentage that is left out because
an equal one is there. *Complete* sharing takes whole queries or nothing, *partial* sharing any part
of them. Whole numbers have no bounds here (``unbounded``), as in the paper.

Paper: Query Merging, Section 8.2.1, Section 8.2.2, Section 8.2.3, Section 8.3.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import mean, quantiles

from benchmarks.harness.parts import Found
from benchmarks.harness.report import Setup
from benchmarks.merging.query_set_reader import read_query_set_file
from benchmarks.merging.query_sets import generate
from benchmarks.merging.ways import (
    CLOCK,
    HB,
    HB_PLUS,
    NO_SOLVER,
    SHARED,
    SM,
    SM_PLUS,
    WAYS,
    Planned,
    Points,
    QuerySet,
    Sweep,
    add_all,
    classes_of,
    difference,
    growth,
    planned,
    swept,
)
from headrace.merge import Scope
from headrace.native.compare import Case
from headrace.plan.nodes import Sink

#: Where the published sets are, beside the repository; they are not part of it.
PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "isqm"
STREAMS = 4
#: Milliseconds that a query may take, on average (twelve thousand in twelve seconds).
TARGET_MS = 1.0


@dataclass(frozen=True)
class PlanningSize:
    """What is planned at a scale; ``sets`` are the published ones, or all if there are none."""

    repeats: int
    sets: tuple[str, ...] | None
    groups: int
    counts: tuple[int, ...]
    streams: tuple[int, ...]
    queries_per_stream: int
    groups_per_stream: int
    most_queries: int
    swept_queries: int
    swept_groups: int
    distinct: tuple[int, ...]
    overlaps: tuple[int, ...]
    living: int
    changes: int


@dataclass(frozen=True)
class PlanningBench:
    """What the parts are given."""

    setup: Setup
    size: PlanningSize


def sets(bench: PlanningBench) -> Found:
    """The published sets, with reference values beside ours."""
    if not PUBLISHED.is_dir():
        bench.setup.say(f"the published query sets are not in {PUBLISHED}: this part is left out")
        return [], {}
    cases: list[Case] = []
    figures: dict[str, float] = {}
    for name, expected in references((PUBLISHED / "reference.md").read_text("utf-8")).items():
        if bench.size.sets is None or name in bench.size.sets:
            case = published_set(bench, name, expected)
            cases.append(case)
            for scope in Scope:
                label = f"{SM.name} {scope.value}"
                figures[f"{name}, {label}, {SHARED}"] = case.notes["points"][label][SHARED]
    return cases, figures


def published_set(
    bench: PlanningBench, name: str, expected: Mapping[tuple[str, str], float]
) -> Case:
    path = PUBLISHED / f"{name}.txt.xz"
    given = QuerySet(
        read_query_set_file(path, on_bad=lambda bad: bench.setup.say(f"sets: left out: {bad}"))
    )
    found = {scope: planned(given, WAYS[scope], scope, bench.size.repeats) for scope in Scope}
    wrong = next(filter(None, (difference(given, of) for of in found.values())), None)
    labelled = {
        f"{way.name} {scope.value}": one for scope, of in found.items() for way, one in of.items()
    }
    reference = {
        f"{way.name} {scope.value}": expected[way.name.replace("sm+", "sm"), scope.value]
        for scope, of in found.items()
        for way in of
        if way in (HB, HB_PLUS, SM, SM_PLUS)
    }
    for label, one in labelled.items():
        bench.setup.say(
            f"sets/{name}: {label} shares {one.shared:.2f} % "
            f"(reference: {reference.get(label, 'none')}), {one.milliseconds:.3f} ms each"
        )
    charts = {SHARED: "shared", CLOCK: "milliseconds"}
    return Case(
        f"sets/{name}",
        wrong is None,
        len(given.queries),
        {label: one.seconds for label, one in labelled.items()},
        {
            f"{label} (reference {reference[label]:.2f}), %"
            if label in reference
            else f"{label}, %": one.shared
            for label, one in labelled.items()
        },
        {
            "operators": sum(1 for query in given.queries for _ in query.walk()),
            "points": {label: one.to_json() for label, one in labelled.items()},
            "reference": reference,
            "bars": {
                title: {
                    "x": "sharing",
                    "y": title,
                    "groups": [scope.value for scope in Scope],
                    # Nothing, where a strategy is for whole queries only.
                    "bars": {
                        way.name: [
                            round(getattr(found[scope][way], field), 4)
                            if way in found[scope]
                            else 0
                            for scope in Scope
                        ]
                        for way in WAYS[Scope.COMPLETE]
                    },
                }
                for title, field in charts.items()
            },
            **({} if wrong is None else {"difference": wrong}),
        },
    )


def references(text: str) -> dict[str, dict[tuple[str, str], float]]:
    """The reference percentages of each published set, by strategy and scope."""
    columns = [(way, scope.value) for scope in Scope for way in ("hb", "hb+", "sm")]
    rows = re.findall(r"^\| (\S+)\.txt \| \d+ \|((?: [\d.]+ \|){6})$", text, re.MULTILINE)
    return {
        name: dict(zip(columns, map(float, re.findall(r"[\d.]+", figures)), strict=True))
        for name, figures in rows
    }


def queries(bench: PlanningBench) -> Found:
    """More and more queries of as many groups (Section 8.2.1): does each take as long as before?"""
    size = bench.size
    # Not the first: with few queries of each group, most of them are new.
    few, many = size.counts[1], size.counts[-1]
    limit = many * TARGET_MS / 1_000
    cases: list[Case] = []
    figures: dict[str, float] = {}

    def make(count: int) -> QuerySet:
        return QuerySet.of(generate(count, STREAMS, size.groups))

    for scope, ways in WAYS.items():
        sweep = Sweep("queries", "queries", size.counts, make, ways, scope)
        case, points = swept(bench.setup, size.repeats, sweep)
        seconds = points[many][SM_PLUS].seconds
        grown = {
            f"{way.name}, ms at {many:,}/{few:,}": value
            for way, value in growth(points, few, many).items()
        }
        notes = {
            **case.notes,
            "target": f"sm+ plans {many:,} queries in less than {limit:g} s",
            "reached": seconds < limit,
        }
        cases.append(replace(case, ratio={**grown, **case.ratio}, notes=notes))
        ours = f"queries, {SM_PLUS.name} {scope.value}"
        figures[f"{ours}, seconds for {many:,} (target < {limit:g})"] = seconds
        figures |= {f"queries, {scope.value}, {name}": value for name, value in grown.items()}
    return cases, figures


def sources(bench: PlanningBench) -> Found:
    """More and more streams with queries of their own (Section 8.2.2), with and without an index.

    Beyond ``most_queries`` there are fewer for each stream than in the paper. More queries take
    longer each, whatever they read, so the most streams are also compared with few that have as
    many queries.
    """
    size = bench.size
    few, many = size.streams[1], size.streams[-1]
    cases: list[Case] = []
    figures: dict[str, float] = {}

    def make(streams: int, as_many_as: int | None = None) -> QuerySet:
        wanted = as_many_as or streams
        count = min(size.queries_per_stream * wanted, size.most_queries)
        return QuerySet.of(generate(count, streams, size.groups_per_stream * wanted))

    for scope, indexed in ((Scope.COMPLETE, (HB_PLUS, SM, SM_PLUS)), (Scope.PARTIAL, (SM_PLUS,))):
        ways = [w for way in indexed for w in (way, replace(way, source_index=False))]
        sweep = Sweep("sources", "streams", size.streams, make, ways, scope)
        case, points = swept(bench.setup, size.repeats, sweep)
        grown = {
            f"{way.name}, ms at {many}/{few} streams": value
            for way, value in growth(points, few, many).items()
        }
        crowded = planned(make(few, as_many_as=many), ways, scope, size.repeats)
        grown |= {
            f"{way.name}, ms at {many}/{few} streams, as many queries": one.milliseconds
            / crowded[way].milliseconds
            for way, one in points[many].items()
        }
        limit = f"{size.queries_per_stream} for each stream, {size.most_queries:,} at most"
        notes = {**case.notes, "queries": limit}
        cases.append(replace(case, ratio={**grown, **case.ratio}, notes=notes))
        figures |= {f"sources, {scope.value}, {name}": value for name, value in grown.items()}
    return cases, figures


def distinct(bench: PlanningBench) -> Found:
    """A greater and greater share of queries that are like no other (Section 8.2.3)."""
    size = bench.size

    def make(percent: int) -> QuerySet:
        share = percent / 100
        return QuerySet.of(generate(size.swept_queries, STREAMS, size.swept_groups, share))

    ways = (*WAYS[Scope.COMPLETE], NO_SOLVER)
    axis = "percent of distinct queries"
    sweep = Sweep("distinct", axis, size.distinct, make, ways, Scope.COMPLETE)
    case, points = swept(bench.setup, size.repeats, sweep)
    return [case], _ends("distinct", points)


def overlap(bench: PlanningBench) -> Found:
    """Queries of a group with more and more in common (Section 8.3)."""
    size = bench.size

    def make(percent: int) -> QuerySet:
        generated = generate(size.swept_queries, STREAMS, size.swept_groups, overlap=percent)
        return QuerySet.of(generated, known=percent == 100)

    ways = (*WAYS[Scope.PARTIAL], NO_SOLVER)
    sweep = Sweep("overlap", "percent of overlap", size.overlaps, make, ways, Scope.PARTIAL)
    case, points = swept(bench.setup, size.repeats, sweep)
    return [case], _ends("overlap", points)


def _ends(part: str, points: Points) -> dict[str, float]:
    """What a query takes at both ends of an axis of percent."""
    return {
        f"{part}, {way.name}, {CLOCK} at {at} %": points[at][way].milliseconds
        for at in (min(points), max(points))
        for way in (HB_PLUS, SM, SM_PLUS, NO_SOLVER)
    }


def churn(bench: PlanningBench) -> Found:
    """A plan of many queries, some of which leave while others come, one at a time at random."""
    size = bench.size
    # A fifth is like no other, so that operators go and come, and not only users of operators.
    generated = generate(size.living + size.changes, STREAMS, size.groups, distinct=0.2)
    given = QuerySet.of(generated)
    plans = {way: way.empty_plan(Scope.PARTIAL) for way in (HB_PLUS, SM, SM_PLUS)}
    for plan in plans.values():
        add_all(plan, given.queries[: size.living])
    spent: dict[str, list[float]] = {f"{w.name} {kind}": [] for w in plans for kind in _KINDS}
    gc.collect()
    for turn, (kind, query) in enumerate(changes(given.queries, size.living)):
        for way in plans if turn % 2 == 0 else reversed(plans):
            started = time.perf_counter()
            if kind == "add":
                plans[way].add(query)
            else:
                plans[way].remove(query.name)
            spent[f"{way.name} {kind}"].append(time.perf_counter() - started)
    alive = [index for index, query in enumerate(given.queries) if query.name in plans[SM]]
    assert given.classes is not None
    left = QuerySet([given.queries[i] for i in alive], [given.classes[i] for i in alive])
    found = {
        way: Planned(len(alive), plan.sharing_efficiency, 0.0, classes_of(plan, left.queries))
        for way, plan in plans.items()
    }
    wrong = difference(left, found)
    milliseconds = {name: _spread(of) for name, of in spent.items()}
    case = Case(
        f"churn/{size.living:,} queries, {size.changes:,} come and {size.changes:,} leave",
        wrong is None,
        size.living,
        {name: mean(of) for name, of in spent.items()},
        {f"{way.name}, {SHARED}": one.shared for way, one in found.items()},
        {
            "milliseconds": milliseconds,
            **({} if wrong is None else {"difference": wrong}),
        },
    )
    return [case], {
        f"churn, {name}, {figure}, ms": value
        for name, of in milliseconds.items()
        if name.startswith(f"{SM_PLUS.name} ")
        for figure, value in of.items()
    }


_KINDS = ("add", "remove")


def changes(queries: Sequence[Sink], living: int) -> Iterator[tuple[str, Sink]]:
    """The first queries are there; the others come, and as many leave, in random order."""
    chance = Random(0)
    alive, coming = list(queries[:living]), list(queries[living:])
    kinds = [kind for kind in _KINDS for _ in coming]
    chance.shuffle(kinds)
    for kind in kinds:
        if kind == "add":
            alive.append(coming.pop())
            yield kind, alive[-1]
        else:
            place = chance.randrange(len(alive))
            alive[place], alive[-1] = alive[-1], alive[place]
            yield kind, alive.pop()


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "mean": round(1_000 * mean(seconds), 4),
        "99th percentile": round(1_000 * quantiles(seconds, n=100, method="inclusive")[98], 4),
        "longest": round(1_000 * max(seconds), 4),
    }
