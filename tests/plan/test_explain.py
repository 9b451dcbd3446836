"""``explain`` in its modes, against golden files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.cost import Cost
from headrace.errors import QueryError
from headrace.explain import MODES, Explanation, explain
from headrace.optimizer import optimize
from headrace.optimizer.windows.describe import described
from headrace.optimizer.windows.layout import layouts
from headrace.plan.coverage import Coverage
from headrace.plan.json import from_json
from headrace.plan.nodes import Node, SameWindow
from headrace.plan.windows import Hopping, tumbling
from headrace.planner.decision import Alternative
from headrace.planner.explaining import Section
from headrace.stats import NO_STATISTICS, UNKNOWN, Estimated, Exact, Figure, Observation
from headrace.stats.load import Load
from tests.support.build import call, col, count, group, join, select, where
from tests.support.plans import BIDS, CLICKS

FOLDER = Path(__file__).parent.parent / "fixtures" / "explain"


@dataclass(frozen=True)
class Step:
    name: str
    details: tuple[str, ...] = ()

    def describe(self) -> str:
        return "\n".join([self.name, *self.details])


def counts_query() -> Explanation:
    cheap = where(BIDS, call("not", call(">=", col(BIDS, "price"), 5)))
    counts = group(cheap, ("auction",), "ts", tumbling(600_000), n=count())
    plan = where(select(counts, "auction", "n"), call(">", col(counts, "auction"), 3))
    seen = Observation(6000, 0, 60_000, distinct={frozenset({"auction"}): Exact(40)})
    return Explanation(
        plan,
        optimize(plan),
        steps=(
            Step("append panes of bids", ("10-minute panes by auction", "count(*)")),
            Step("close windows and write"),
        ),
        statistics=NO_STATISTICS.observe_stream("bids", seen),
    )


def join_query() -> Explanation:
    pairs = join(BIDS, CLICKS, ("auction", "auction"))
    time = SameWindow(col(pairs, "a.ts"), col(pairs, "b.at"), Hopping(60_000, 30_000))
    inner = join(BIDS, CLICKS, ("auction", "auction"), time)
    plan = select(
        where(inner, call(">", col(inner, "a.price"), 5)),
        ("k", col(inner, "a.auction")),
        ("page", col(inner, "b.page")),
    )
    state = join(plan, BIDS, ("k", "auction"))
    return Explanation(
        state,
        optimize(state),
        alternatives=(
            Alternative("a, b", Cost(Estimated(1200), "rows/s"), "as written", True, "cheapest"),
            Alternative("b, a", Cost(Estimated(5400), "rows/s"), "join_order", False, "4.5 times"),
            Alternative("c", Cost(UNKNOWN, "rows/s"), "join_order", False, "cost unknown"),
        ),
        advice=("the engine advises too",),
    )


def flow_query() -> Explanation:
    one = where(BIDS, call("=", col(BIDS, "channel"), "a"))
    plan = group(one, ("auction",), "ts", tumbling(600_000), Hopping(3_600_000, 60_000), n=count())
    distinct: dict[frozenset[str], Figure] = {
        frozenset({"auction"}): Exact(40),
        frozenset({"channel"}): Estimated(8),
    }
    seen = Observation(6_000, 0, 60_000, null_times=4, distinct=distinct)
    return Explanation(plan, optimize(plan), statistics=NO_STATISTICS.observe_stream("bids", seen))


def windows_query() -> Explanation:
    """Example 7 of the paper on factor windows."""
    minute = 60_000
    windows = [tumbling(20 * minute), tumbling(30 * minute), tumbling(40 * minute)]
    plan = group(BIDS, ("auction",), "ts", *windows, n=count())
    load = Load(rows=60_000, milliseconds=60 * minute, keys=40)
    ranked = layouts(windows, load)
    shared = described(
        "auction of bids", ranked[0].layout, Coverage.PARTITIONED, load, tuple(ranked)
    )
    return Explanation(plan, optimize(plan), decided=(Section("Windows", "windows", (shared,)),))


QUERIES = {
    "counts": counts_query,
    "join": join_query,
    "flow": flow_query,
    "windows": windows_query,
}
SUFFIX = {"json": "json", "dot": "dot"}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("mode", MODES)
def test_golden(name: str, mode: str, update_golden: bool) -> None:
    text = explain(QUERIES[name](), mode).rstrip("\n") + "\n"
    path = FOLDER / f"{name}-{mode}.{SUFFIX.get(mode, 'txt')}"
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_json_holds_both_plans_and_never_a_number_for_what_is_unknown() -> None:
    query = join_query()
    data = json.loads(explain(query, "json"))
    assert from_json(data["logical"]) == query.logical
    assert from_json(data["optimized"]) == query.optimized.plan
    assert data["cost"] == {"value": None, "kind": "unknown", "unit": "rows/s"}
    assert data["alternatives"][2]["cost"]["value"] is None
    assert {rule["rule"] for rule in data["rules"]} == set(query.optimized.trace.fired)


def test_no_advice_is_said() -> None:
    assert explain(counts_query(), "extended").endswith("== Advice ==\nno advice")


def test_a_rule_that_did_nothing_is_said_to_have_done_nothing() -> None:
    plan: Node = BIDS
    text = explain(Explanation(plan, optimize(plan)), "extended")
    assert text.count("same as above") == len(
        {s.rule + s.stage for s in optimize(plan).trace.steps}
    )
    assert "pass 2" not in text


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(QueryError, match="codegen"):
        explain(counts_query(), "codegen")
