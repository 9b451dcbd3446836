"""The bench of merging: its parts that plan, its checks, and what the published sets share."""

from __future__ import annotations

import doctest
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest

from benchmarks import BenchError
from benchmarks.harness.parts import Found, chosen_parts
from benchmarks.harness.report import Setup
from benchmarks.merging import planning, running, ways
from benchmarks.merging.merging import PARTS, SIZES
from benchmarks.merging.planning import PlanningBench, changes, references
from benchmarks.merging.query_set_reader import read_query_set_file
from benchmarks.merging.query_sets import RUN_SHAPES, generate
from benchmarks.merging.streams import DELAY, LAST, write_streams
from benchmarks.merging.ways import (
    HB,
    HB_PLUS,
    NO_SOLVER,
    SHARED,
    SM,
    SM_PLUS,
    WAYS,
    QuerySet,
    add_all,
    difference,
    planned,
)
from headrace.merge import MergeStrategy, Scope
from headrace.merge.strategies import make_matcher
from headrace.native.compare import Case
from headrace.plan.durations import parse_duration
from headrace.plan.nodes import Aggregate, Join, Union

GENERATED = {"queries": 2, "sources": 2, "distinct": 1, "overlap": 1, "churn": 1}


def tiny_anew(part: Callable[[PlanningBench], Found]) -> tuple[list[Case], list[str]]:
    """The cases of a part, as a report writes them, and what it said. No part needs Spark."""
    said: list[str] = []
    with TemporaryDirectory() as folder:
        setup = Setup("tiny", None, Path(folder), said.append)  # type: ignore[arg-type]
        cases, figures = part(PlanningBench(setup, SIZES["tiny"].planning))
    json.dumps([case.to_json() for case in cases])
    assert all(value > 0 for value in figures.values())
    return cases, said


#: The same for all that ask for one part.
tiny = cache(tiny_anew)


# --- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [p if p != "sources" else pytest.param(p, marks=pytest.mark.slow) for p in GENERATED],
)
def test_a_part_that_plans_generated_queries(part: str) -> None:
    cases, _ = tiny(getattr(planning, part))
    assert len(cases) == GENERATED[part]
    for case in cases:
        assert case.equal, case.notes["difference"]
        assert case.seconds
        if part != "churn":
            lines = case.notes["series"]["lines"]
            bars = case.notes["bars"][SHARED]["bars"]
            assert lines.keys() == bars.keys() == case.seconds.keys()
            assert {len(line) for line in lines.values()} == {len(case.notes["series"]["at"])}


def test_meaning_finds_all_groups_and_text_does_not() -> None:
    complete, partial = tiny(planning.queries)[0]
    assert complete.rows == 120
    for case in (complete, partial):
        last = case.notes["points"]["120"]
        assert last["sm"]["classes"] == last["sm+"]["classes"] == 10
        assert last["hb"]["classes"] > last["hb+"]["classes"] > 10
        assert last["sm"][SHARED] > last["hb+"][SHARED] > last["hb"][SHARED] >= 0
        assert case.notes["target"] == "sm+ plans 120 queries in less than 0.12 s"
        assert case.notes["reached"] == (case.seconds["sm+"] < 0.12)
        assert "sm+, ms at 120/80" in case.ratio


def test_distinct_queries_share_nothing_as_a_whole() -> None:
    (case,) = tiny(planning.distinct)[0]
    shared = {at: point["sm, no solver"][SHARED] for at, point in case.notes["points"].items()}
    assert shared["0"] > shared["50"] > shared["100"] == 0


def test_overlap_is_shared_in_part() -> None:
    (case,) = tiny(planning.overlap)[0]
    few, many = (case.notes["points"][at]["sm"][SHARED] for at in ("20", "100"))
    assert 0 < few < many


def test_churn_tells_of_adding_and_removing() -> None:
    (case,) = tiny(planning.churn)[0]
    assert set(case.notes["milliseconds"]) == {
        f"{way} {kind}" for way in ("hb+", "sm", "sm+") for kind in ("add", "remove")
    }
    for figures in case.notes["milliseconds"].values():
        assert 0 < figures["mean"] <= figures["longest"]
        assert figures["99th percentile"] <= figures["longest"]


def test_as_many_come_as_leave_and_only_who_is_there_leaves() -> None:
    queries = [query.sink for query in generate(50, groups=5)]
    alive = {query.name for query in queries[:40]}
    kinds = Counter[str]()
    for kind, query in changes(queries, 40):
        kinds[kind] += 1
        if kind == "add":
            assert query.name not in alive
            alive.add(query.name)
        else:
            alive.remove(query.name)
    assert kinds == {"add": 10, "remove": 10}


def test_without_the_published_sets_their_part_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PUBLISHED", tmp_path / "nowhere")
    cases, said = tiny_anew(planning.sets)
    assert cases == []
    assert "left out" in said[0]


def test_parts_are_chosen_by_name() -> None:
    planned = ["sets", "queries", "sources", "distinct", "overlap", "churn"]
    assert list(PARTS) == [*planned, "run", "many"]
    assert chosen_parts("merging", PARTS, "") == list(PARTS)
    assert chosen_parts("merging", PARTS, "run, sets") == ["sets", "run"]
    with pytest.raises(BenchError, match="no part 'chrun'"):
        chosen_parts("merging", PARTS, "chrun")


# --- checks --------------------------------------------------------------------------------------


def test_merging_what_means_different_things_is_told() -> None:
    given = QuerySet.of(generate(30, groups=5))
    found = planned(given, (HB, HB_PLUS, SM, SM_PLUS), Scope.COMPLETE, 1)
    assert difference(given, found) is None
    # As if no two of them meant the same.
    apart = QuerySet(given.queries, range(len(given.queries)))
    assert difference(apart, found) == "hb+ merges queries that mean different things"
    # As if meaning were coarser than text.
    turned = {HB_PLUS: found[SM], SM: found[HB_PLUS]}
    assert difference(QuerySet(given.queries), turned) == "sm does not find all that hb+ finds"


def test_examples_of_the_bench() -> None:
    for module in (ways, running):
        assert doctest.testmod(module).failed == 0


def test_repeats_take_turns() -> None:
    given = QuerySet.of(generate(20, groups=5))
    found = planned(given, WAYS[Scope.PARTIAL], Scope.PARTIAL, 3)
    assert list(found) == list(WAYS[Scope.PARTIAL])
    assert all(one.seconds > 0 and one.queries == 20 for one in found.values())


# --- what is run ---------------------------------------------------------------------------------


def test_half_of_the_queries_that_run_are_joins_and_half_aggregates_of_unions() -> None:
    queries = generate(100, streams=4, groups=10, shapes=RUN_SHAPES)
    kinds = Counter[tuple[bool, ...]]()
    for query in queries:
        nodes = list(query.sink.walk())
        found = tuple(any(isinstance(n, kind) for n in nodes) for kind in (Join, Union, Aggregate))
        kinds[found] += 1
        assert len(query.sink.streams()) == 2
    assert kinds == {(True, False, False): 30, (True, False, True): 20, (False, True, True): 50}


def test_no_row_of_the_streams_is_late_and_the_last_ones_close_no_window(tmp_path: Path) -> None:
    streams = write_streams(tmp_path, rows=40, batches=4)
    assert [stream.name for stream in streams] == ["example1", "example2", "example3", "example4"]
    assert parse_duration(DELAY) > LAST
    seen = set()
    for stream in streams:
        files = sorted(stream.folder.glob("*.parquet"))
        assert len(files) == 4
        newest = None
        for file in files:
            table = pq.read_table(file)
            assert table.num_rows == 40
            times = table.column("time1").to_pylist()
            assert times == sorted(times) == table.column("time2").to_pylist()
            assert newest is None or times[0] > newest
            newest = times[-1]
            for name in table.column_names[:6]:
                assert all(0 <= value < 100 for value in table.column(name).to_pylist())
            seen.add(tuple(table.column(0).to_pylist()))
    assert len(seen) == 16


# --- the published sets --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(shared_data: Path) -> Path:
    folder = shared_data / "isqm"
    if not folder.is_dir():
        pytest.skip(f"the query sets {folder} are not on this machine")
    return folder


def shared(published: Path, name: str, scope: Scope) -> float:
    """By meaning, and without the solver: what it proves within its time depends on the machine."""
    plan = NO_SOLVER.empty_plan(scope)
    add_all(plan, read_query_set_file(published / f"{name}.txt.xz"))
    return plan.sharing_efficiency


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("IncreasingQueries-1k", 45.24),
        ("IncreasingQueries-2k", 71.74),
        ("IncreasingQueries-4k", 81.15),
    ],
)
def test_whole_queries_that_published_sets_share(
    published: Path, name: str, expected: float
) -> None:
    assert round(shared(published, name, Scope.COMPLETE), 2) == expected


@pytest.mark.data
def test_parts_that_published_sets_share(published: Path) -> None:
    assert round(shared(published, "PartialOverlap-100-4stream", Scope.PARTIAL), 2) == 83.31
    assert shared(published, "PartialOverlap-20-4stream", Scope.PARTIAL) >= 40.92


@pytest.mark.data
def test_text_that_published_sets_share(published: Path) -> None:
    """The reference compares lines. Plans do not know how a window was spelt: 60 seconds or one
    minute, tumbling or sliding by its length; so HB finds a little more."""
    name, reference, sorted_reference = "IncreasingQueries-1k", 0.62, 2.65
    with lzma.open(published / f"{name}.txt.xz", "rt") as file:
        lines = [line.strip() for line in file if line.strip()]
    queries = read_query_set_file(published / f"{name}.txt.xz")
    sizes = [sum(1 for _ in query.walk()) for query in queries]

    def repeated(spelt: Sequence[Hashable]) -> float:
        """The percentage of operators, but for sinks, in lines that were there before."""
        first = {line: place for place, line in reversed(list(enumerate(spelt)))}
        saved = sum(size - 1 for i, size in enumerate(sizes) if first[spelt[i]] != i)
        return 100 * saved / sum(sizes)

    plan = HB.empty_plan(Scope.COMPLETE)
    add_all(plan, queries)
    assert round(repeated(lines), 2) == reference
    assert repeated([_with_windows_in_seconds(line) for line in lines]) == plan.sharing_efficiency
    matcher = make_matcher(MergeStrategy.HB_PLUS, unbounded=True, solver_steps=0)
    roots = [matcher.root(query.input) for query in queries]
    windows = [tuple(re.findall(_WINDOW, line)) for line in lines]
    assert round(repeated(list(zip(roots, windows, strict=True))), 2) == sorted_reference


def _with_windows_in_seconds(line: str) -> str:
    def spelt(found: re.Match[str]) -> str:
        units = {"Seconds": 1, "Minutes": 60}
        spans = [units[u] * int(n) for u, n in re.findall(r"(Seconds|Minutes)\((\d+)\)", found[0])]
        time = re.search(r'Attribute\("(\w+)"\)', found[0])
        assert time is not None
        return f"Window({time[1]}, {spans[0]}, {spans[-1]})"

    return re.sub(_WINDOW, spelt, line)


_WINDOW = r'\w+Window::of\(EventTime\(Attribute\("\w+"\)\)(?:, (?:Seconds|Minutes)\(\d+\))+\)'


@pytest.mark.data
def test_reference_values_are_read(published: Path) -> None:
    found = references((published / "reference.md").read_text(encoding="utf-8"))
    assert len(found) == 7
    assert found["PartialOverlap-20-4stream"] == {
        ("hb", "complete"): 0.0,
        ("hb+", "complete"): 0.0,
        ("sm", "complete"): 0.08,
        ("hb", "partial"): 34.69,
        ("hb+", "partial"): 37.21,
        ("sm", "partial"): 40.92,
    }


@pytest.mark.data
def test_published_sets_stand_beside_their_reference(published: Path) -> None:
    (case,) = tiny_anew(planning.sets)[0]
    assert case.case == "sets/DistinctSources-800q-2s"
    assert case.equal, case.notes["difference"]
    assert (case.rows, case.notes["operators"]) == (800, 8760)
    found, reference = case.notes["points"], case.notes["reference"]
    assert reference["sm+ complete"] == 88.6 == found["sm+ complete"][SHARED]
    assert round(case.ratio["sm+ complete (reference 88.60), %"], 2) == 88.6
    assert set(reference) < set(found)
    assert {"structural complete", "sm-bu partial"} <= set(found) - set(reference)
    assert "structural partial" not in found
    assert set(case.notes["bars"]) == {SHARED, ways.CLOCK}
