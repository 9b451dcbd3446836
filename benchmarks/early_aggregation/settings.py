"""The settings of the paper: what its streams are like, its sweeps and its showcases.

A setting is also seen as the cost models see it, the paper's and the engine's.

Paper: Early Aggregation, Section 7.1.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from headrace.calibration.join_setting import JoinSetting
from headrace.cost.early_aggregation import SetFigures, StreamFigures, Tuning
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.plan.nodes import Aggregate
from headrace.planner.early_aggregation import SetLoads, plan_costs
from headrace.stats.load import Load


@dataclass(frozen=True)
class Setting(JoinSetting):
    """A setting, and what is predicted of it."""

    @property
    def figures(self) -> SetFigures:
        return SetFigures(
            tuple(
                StreamFigures(rate, rate * self.seconds, groups, self.selectivity)
                for rate, groups in zip(self.rates, self.groups, strict=True)
            )
        )

    @property
    def shape(self) -> AggregationJoin:
        """The query as the planner sees it."""
        from headrace.plan.nodes import Source
        from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
        from headrace.sql import plan_query

        fields = [("ts", TIMESTAMP), ("j", STRING), ("g", STRING), ("a", BIGINT)]
        catalog = {name: Source(name, Schema.of(fields), "ts") for name in self.names}
        plan = plan_query(self.sql(), catalog).plan
        node = next(n for n in plan.walk() if isinstance(n, Aggregate))
        found = aggregation_join(node)
        assert isinstance(found, AggregationJoin)
        return found

    def predicted(self, tuning: Tuning) -> dict[frozenset[int], float]:
        """What the engine's model says of each plan, per millisecond of the streams."""
        shape = self.shape
        values = 1 / self.selectivity
        sets = {
            index: Load(rate * self.seconds, self.seconds * 1_000, groups * values)
            for index, (rate, groups) in enumerate(zip(self.rates, self.groups, strict=True))
        }
        keys = {
            (index, position): values
            for position, members in enumerate(shape.graph.key_classes)
            for index, _ in members
        }
        return plan_costs(shape, SetLoads(sets, {}, keys), tuning)


TWO = Setting((300, 300), (150, 1), 0.1, 5_000 / 300)
THREE = Setting((200, 200, 200), (20, 1, 1), 0.1, 300 / 200)

#: Figure 10: the setting, and the plan that the paper found best.
SHOWCASES = {
    "LAP": Setting((300, 500), (1500, 1500), 0.01, 1.0),
    "EAP10": Setting((300, 500), (1, 1500), 0.01, 1.0),
    "EAP01": Setting((300, 500), (1500, 1), 0.01, 1.0),
    "EAP11": Setting((300, 500), (150, 150), 0.1, 4.0),
}


def sweeps(base: Setting, steps: int) -> Iterator[tuple[str, str, list[tuple[float, Setting]]]]:
    """Name, label of the axis, and points of each sweep around a default setting."""
    window = base.seconds * base.rates[0]
    yield (
        "window size",
        "rows in a window",
        [
            (share * window, replace(base, seconds=share * base.seconds))
            for share in _spread((0.2, 0.4, 0.6, 0.8, 1.0), steps)
        ],
    )
    yield (
        "groups",
        "groups of S1",
        [
            (3.0**power, replace(base, groups=(3**power, *base.groups[1:])))
            for power in _spread((1, 3, 5, 7, 9), steps)
        ],
    )
    yield (
        "stream rate",
        "rows of S1 per second",
        [
            (rate, replace(base, rates=(rate, *base.rates[1:])))
            for rate in _spread((100.0, 300.0, 500.0, 700.0, 900.0), steps)
        ],
    )
    yield (
        "selectivity",
        "join selectivity",
        [
            (selectivity, replace(base, selectivity=selectivity))
            # With three streams and 0.5, aggregating late would make billions of rows.
            for selectivity in _spread((0.0005, 0.005, 0.05, 0.5)[: 6 - len(base.rates)], steps)
        ],
    )


T = TypeVar("T")


def _spread(values: Sequence[T], count: int) -> Sequence[T]:
    """So many of the values, the first and the last among them; the middle one if it is one."""
    if count >= len(values):
        return values
    if count == 1:
        return [values[len(values) // 2]]
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
