"""An aggregate whose functions are computed in two ways: some from panes, the others from rows.

Both have the same groups in the same epochs, and each of them its own columns of them.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import Definition, Sql, column, named
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.plan.nodes import WINDOW_COLUMN, WINDOW_ID_COLUMN, Aggregate


class SplitAggregate(Operator):
    """Puts the groups of two aggregates over the same windows together."""

    def __init__(self, node: Aggregate, from_panes: Operator, from_rows: Operator) -> None:
        self.node: Aggregate = node
        self._from_panes = from_panes
        self._from_rows = from_rows

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self._from_panes, self._from_rows)

    def delta(self, epoch: Epoch) -> Definition | None:
        left, right = self._from_panes.delta(epoch), self._from_rows.delta(epoch)
        if left is None or right is None:
            return None
        schema = self.node.schema
        group = {key.name for key in self.node.keys} | {WINDOW_COLUMN, WINDOW_ID_COLUMN}
        shown: dict[str, Sql] = {}
        same: list[Sql] = []
        sides = []
        for at, side in enumerate((left, right)):
            names = {name: f"__side{at}_{i}" for i, name in enumerate(side.schema.names)}
            renamed = [named(column(name), new) for name, new in names.items()]
            sides.append(exp.Select(expressions=renamed).from_(side.query.subquery(), copy=False))
            for name, new in names.items():
                if name in group and at:
                    same.append(exp.NullSafeEQ(this=shown[name].copy(), expression=column(new)))
                else:
                    shown[name] = column(new)
        both = exp.Select(expressions=[named(shown[name], name) for name in schema.names])
        both = both.from_(sides[0].subquery("__from_panes"), copy=False)
        joined = both.join(
            sides[1].subquery("__from_rows"), on=exp.and_(*same, copy=False), copy=False
        )
        return Definition(joined, schema)

    def steps(self) -> tuple[EpochStep, ...]:
        return (
            EpochStep("put groups from panes and from rows together", ("by keys and windows",)),
        )
