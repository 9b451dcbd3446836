"""What is said of a global plan: every operator once, who uses it, and what that saves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.merging.query_sets import generate
from headrace.compiler.planning import PlanState, plan_all
from headrace.compiler.shared_state import described_stores
from headrace.errors import QueryError
from headrace.merge import GlobalPlan, MergeStrategy, Scope
from headrace.merge.describe import DescribedPlan, Description, describe
from headrace.merge.printing import MODES, explain_merged, to_json
from headrace.merge.rewriting import Merging
from headrace.merge.solver import SOLVER_STEPS
from headrace.merge.strategies import make_matcher
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Sink, Source, Union
from headrace.plan.types import INT, STRING, TIMESTAMP, Schema
from headrace.planner.live_query import LiveQuery
from headrace.sql import plan_query
from headrace.stats import NO_STATISTICS, Observation
from tests.conftest import REPOSITORY
from tests.support.build import call, col, where

FOLDER = REPOSITORY / "tests" / "fixtures" / "explain"
SUFFIX = {"simple": "txt", "json": "json", "dot": "dot"}
APPEND = OutputMode.APPEND
BIDS = Source(
    "bids",
    Schema.of([("auction", INT), ("price", INT), ("channel", STRING), ("ts", TIMESTAMP)]),
    "ts",
    10_000,
)
CLICKS = Source("clicks", Schema.of([("auction", INT), ("at", TIMESTAMP)]), "at")
CATALOG: dict[str, Source] = {"bids": BIDS, "clicks": CLICKS}

QUERIES = {
    "dear": "SELECT auction, price FROM bids WHERE price > 5",
    "dear_too": "SELECT price AS p, auction AS a FROM bids WHERE NOT price <= 5",
    "counts": "SELECT auction, window, COUNT(*) AS n FROM bids WHERE price >= 6 "
    "GROUP BY auction, window(ts, '10 minutes')",
    "all_prices": "SELECT auction, price * 2 AS twice FROM bids",
    "channels": "SELECT channel FROM bids",
    "clicked": "SELECT b.price FROM bids b JOIN clicks c ON b.auction = c.auction "
    "AND window(b.ts, '1 minute') = window(c.at, '1 minute')",
}


def merged(
    queries: dict[str, str], scope: Scope = Scope.PARTIAL, tenants: dict[str, str] | None = None
) -> GlobalPlan:
    """As an engine merges them: whatever columns are called."""
    strategy = MergeStrategy.SM_PLUS
    plan = GlobalPlan(
        strategy, scope, matcher=make_matcher(strategy, False, SOLVER_STEPS, named=False)
    )
    for name, sql in queries.items():
        best = optimize(plan_query(sql, CATALOG).plan).plan
        plan.add(Sink(best, name, "noop", OutputMode.APPEND), (tenants or {}).get(name))
    return plan


def only(plan: GlobalPlan) -> DescribedPlan:
    (described,) = describe(plan).plans
    return described


@pytest.mark.parametrize("mode", MODES)
def test_golden(mode: str, update_golden: bool) -> None:
    seen = NO_STATISTICS.observe_stream("bids", Observation(6_000, 0, 60_000))
    description = describe(merged(QUERIES), seen, apart={"dear_too"})
    text = explain_merged(description, mode).rstrip("\n") + "\n"
    path: Path = FOLDER / f"merged-{mode}.{SUFFIX[mode]}"
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def beside_their_state(queries: dict[str, str]) -> Description:
    """As an engine would run them."""
    merging = Merging(MergeStrategy.SM_PLUS)
    live = [
        LiveQuery(Sink(optimize(plan_query(sql, CATALOG).plan).plan, name, "noop", APPEND), None)
        for name, sql in queries.items()
    ]
    physical = plan_all(live, PlanState(merging=merging))
    return describe(merging.global_plan, stores=described_stores(physical))


STATE = {
    "sums": "SELECT auction, window, SUM(price) AS s FROM bids GROUP BY auction, "
    "window(ts, '10 minutes')",
    "greatest": "SELECT auction, window, MAX(price) AS m FROM bids GROUP BY auction, "
    "window(ts, '1 hour')",
    "by_channel": "SELECT channel, window, COUNT(*) AS n FROM bids GROUP BY channel, "
    "window(ts, '1 hour')",
    "clicked": QUERIES["clicked"],
    "clicked_longer": "SELECT b.channel FROM bids b JOIN clicks c ON b.auction = c.auction "
    "AND window(b.ts, '5 minutes') = window(c.at, '5 minutes')",
}


def test_state_that_several_read_is_shared() -> None:
    """No operator is the same in two of them, but panes and rows are."""
    description = beside_their_state(STATE)
    bids, both = description.plans
    assert bids.state == ("sums", "greatest")
    assert both.state == ("clicked", "clicked_longer")
    # It groups otherwise, and rows of the stream are not kept for it.
    assert "by_channel" in (*bids.nothing, *bids.reading)
    kinds = sorted((store.kind, store.queries) for store in description.stores)
    assert kinds == [
        ("panes", ("by_channel",)),
        ("panes", ("sums", "greatest")),
        ("rows", ("clicked", "clicked_longer")),
        ("rows", ("clicked", "clicked_longer")),
    ]
    assert description.stores_alone == 7
    text = explain_merged(description)
    assert "state: 7 stores alone, 4 shared, 42.9% fewer" in text
    assert "share state: sums, greatest" in text
    state = to_json(description)["state"]
    assert (state["alone"], state["shared"]) == (7, 4)


def test_equal_queries_are_not_said_to_share_state_alone() -> None:
    (bids,) = beside_their_state(
        {"one": STATE["sums"], "other": STATE["sums"], "third": STATE["greatest"]}
    ).plans
    assert bids.equal == (("one", "other"),)
    assert bids.state == ("third",)


def test_queries_are_told_apart_by_how_much_they_share() -> None:
    bids, both = describe(merged(QUERIES)).plans
    assert bids.equal == (("dear", "dear_too"),)
    assert bids.parts == ("counts",)
    assert bids.reading == ("all_prices",)
    assert bids.nothing == ("channels",)
    assert (both.streams, both.nothing) == (("bids", "clicks"), ("clicked",))


def test_tenants_stand_apart() -> None:
    tenants = {"dear": "acme", "dear_too": "other", "counts": "acme"}
    plan = merged({name: QUERIES[name] for name in tenants}, tenants=tenants)
    description = describe(plan)
    assert [(p.tenant, list(p.roots)) for p in description.plans] == [
        ("acme", ["dear", "counts"]),
        ("other", ["dear_too"]),
    ]
    assert not any(p.equal for p in description.plans)
    assert "== bids of acme ==" in explain_merged(description)


def test_an_operator_is_counted_with_all_who_use_it_through_others() -> None:
    """The filter has one direct user, the projection, but two queries that would each run it."""
    plan = only(merged({name: QUERIES[name] for name in ("dear", "dear_too")}))
    source, filtered, projected = plan.operators
    assert [o.queries for o in plan.operators] == [("dear", "dear_too")] * 3
    assert [o.saved for o in plan.operators] == [1, 1, 1]
    # Only what several read has a name to refer to it by.
    assert [source.name, filtered.name, projected.name] == ["", "", "r0"]


def test_a_part_that_one_query_uses_twice_is_no_sharing_between_queries() -> None:
    cheap = where(BIDS, call("<", col(BIDS, "price"), 5))
    plan = GlobalPlan()
    plan.add(Sink(Union((cheap, cheap)), "twice", "noop", OutputMode.APPEND))
    described = only(plan)
    source, filtered, union = described.operators
    assert (source.saved, filtered.saved, union.saved) == (1, 1, 0)
    assert filtered.queries == ("twice",)
    assert filtered.name == "r0"
    assert described.nothing == ("twice",)


def test_many_users_are_not_all_named() -> None:
    sql = QUERIES["dear"]
    text = explain_merged(describe(merged({f"q{i}": sql for i in range(1, 13)})))
    assert "equal: 12 queries: q1, q2, q3, …\n" in text
    assert "(12 queries: q1, q2, q3, …; saves 11)" in text
    assert text.endswith("\nq1, q2, q3, …: r0")


def test_what_is_unknown_is_no_number() -> None:
    plan = merged(QUERIES)
    unknown = to_json(describe(plan))
    figures = [o["rows_per_second_saved"] for p in unknown["plans"] for o in p["operators"]]
    assert set(figures) == {None}
    assert "rows/s" not in explain_merged(describe(plan))
    seen = NO_STATISTICS.observe_stream("bids", Observation(6_000, 0, 60_000))
    known = to_json(describe(plan, seen))["plans"][0]["operators"]
    saved = {o["text"]: o["rows_per_second_saved"] for o in known}
    # 100 rows a second, which three queries would filter; how many pass nobody knows.
    assert saved["Filter price > 5"] == 200
    assert saved["Project [auction, price]"] is None


def test_the_figures_are_those_of_the_plan() -> None:
    plan = merged(QUERIES)
    told = to_json(describe(plan))
    assert told["queries"] == len(plan) == len(QUERIES)
    assert told["operators"] == {
        "alone": plan.total,
        "merged": plan.size,
        "percent_saved": round(plan.sharing_efficiency, 2),
    }


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize(
    "strategy", [MergeStrategy.NONE, MergeStrategy.HB, MergeStrategy.SM_PLUS, MergeStrategy.SM_BU]
)
def test_each_operator_and_each_query_is_there_once(strategy: MergeStrategy, scope: Scope) -> None:
    """Also after half of the queries have left."""
    queries = generate(60, streams=2, groups=5, distinct=0.2, seed=7)
    plan = GlobalPlan(strategy, scope)
    for query in queries:
        plan.add(query.sink)
    for query in queries[::2]:
        plan.remove(query.sink.name)
    description = describe(plan)
    assert sum(len(p.operators) + len(p.roots) for p in description.plans) == plan.size
    listed = [
        name
        for p in description.plans
        for name in (*(n for group in p.equal for n in group), *p.parts, *p.reading, *p.nothing)
    ]
    assert sorted(listed) == sorted(query.sink.name for query in queries[1::2])
    for p in description.plans:
        for place, operator in enumerate(p.operators):
            assert all(below < place for below in operator.inputs)
            assert operator.evaluations >= len(operator.queries) >= 1
        if strategy is MergeStrategy.NONE:
            assert not p.equal
            assert p.nothing == tuple(p.roots)


def test_the_names_of_all_plans_differ() -> None:
    queries = {f"{name}_{i}": sql for name, sql in QUERIES.items() for i in range(2)}
    description = describe(merged(queries))
    names = [o.name for p in description.plans for o in p.operators if o.name]
    assert names == [f"r{i}" for i in range(len(names))]
    text = explain_merged(description)
    for name in names:
        assert len(re.findall(rf"^{name} := ", text, re.MULTILINE)) == 1


def test_a_description_stays_when_queries_leave() -> None:
    plan = merged(QUERIES)
    description = describe(plan)
    before = explain_merged(description)
    for name in QUERIES:
        plan.remove(name)
    assert explain_merged(description) == before
    assert explain_merged(describe(plan)) == "no queries"
    assert json.loads(explain_merged(describe(plan), "json"))["plans"] == []


def test_dot_has_every_operator_edge_and_sink() -> None:
    description = describe(merged(QUERIES))
    text = explain_merged(description, "dot")
    operators = [o for p in description.plans for o in p.operators]
    assert len(re.findall(r"^    p\d+_\d+ \[", text, re.MULTILINE)) == len(operators)
    edges = re.findall(r"^    p\d+_\d+ -> p\d+_\d+;", text, re.MULTILINE)
    assert len(edges) == sum(len(o.inputs) for o in operators)
    assert text.count("[style=dashed]") == len(QUERIES)
    assert text.count("penwidth=2") == sum(o.shared for o in operators)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not on this machine")
def test_graphviz_reads_it() -> None:
    odd = {'a"b': "SELECT channel FROM bids WHERE channel = 'a\"b\\\\'", **QUERIES}
    text = explain_merged(describe(merged(odd)), "dot")
    subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(QueryError, match=r"cost.*simple, json, dot"):
        explain_merged(describe(merged(QUERIES)), "cost")
