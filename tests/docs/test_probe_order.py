"""docs/probe-order.md shows what ``explain`` says of a join whose streams are known."""

from __future__ import annotations

import re

from headrace.plan.join_graph import join_graph, topmost_joins
from headrace.plan.nodes import Source
from headrace.plan.types import BIGINT, DOUBLE, STRING, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy
from headrace.planner.probe_order import ProbeOrders
from headrace.planner.statistics import RuntimeStatistics
from headrace.sql import plan_query
from tests.docs.examples import document
from tests.docs.generated import check_parts

PROBE_ORDER = document("probe-order.md")
COLUMNS = {
    "orders": (("id", BIGINT), ("customer", BIGINT)),
    "payments": (("id", BIGINT), ("sum", DOUBLE)),
    "shipments": (("id", BIGINT), ("parcel", STRING)),
    "customers": (("id", BIGINT), ("name", STRING)),
}
#: Of each pair: the share of probes that match, and the rows of a match.
SEEN = {
    (0, 1): (0.6, 1.5),
    (0, 2): (0.1, 1.2),
    (0, 3): (0.95, 1.0),
    (1, 0): (0.9, 1.0),
    (1, 2): (0.15, 1.2),
    (2, 0): (0.99, 1.0),
    (2, 1): (0.8, 1.6),
    (3, 0): (0.3, 12.0),
}
KEYS = (2_000_000, 1_400_000, 250_000, 90_000)


def test_the_query_is_explained_as_shown(update_golden: bool) -> None:
    text = PROBE_ORDER.read_text(encoding="utf-8")
    sql = re.search(r"```sql\n(.*?)```", text, re.DOTALL)
    assert sql
    catalog = {
        name: Source(name, Schema.of((*columns, ("ts", TIMESTAMP))), "ts", 0)
        for name, columns in COLUMNS.items()
    }
    join = next(topmost_joins(plan_query(sql[1], catalog).plan))
    orders = ProbeOrders.begin(join, join_graph(join), PlannerPolicy(), RuntimeStatistics())
    observed = {
        "counts": [
            (*pair, 1_000, round(1_000 * rate), round(1_000 * rate * rows))
            for pair, (rate, rows) in SEEN.items()
        ],
        "keys": [(*pair, KEYS[pair[1]]) for pair in SEEN],
        "sampled": [],
        "observed": [],
        "whole": [False] * 4,
        "rows": KEYS,
        "arrivals": (5_000, 4_000, 2_000, 300),
        "looked_up": 3_000,
        "found": 2_000,
        "seconds": {"statistics": 0.01, "all": 1.0},
    }
    for epoch in (1, 2, 3):
        orders.learn(epoch, [observed])
    shown = f"```text\n== Joins ==\n{orders.describe(join, []).text}\n```\n"
    check_parts(PROBE_ORDER, {"explain": shown}, update_golden)
