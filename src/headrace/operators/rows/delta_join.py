"""Joins of streams as delta joins: the results of an epoch that have at least one new row.

Each result comes out once, in the epoch of its last contributor, and no intermediate result is
kept. There are two ways to find them, and each may join its inputs in any order:

- *terms*: the disjoint union, over inputs i, of
      new(i) ⋈ old(j) for j < i ⋈ (old(j) ∪ new(j)) for j > i,
  which costs as much as there are new rows;
- *one pass*: all rows that can take part, joined once, without the results that have no new row.
  Old rows are read only as far back as the conditions on time reach, so with large epochs this
  does the work of one term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from headrace.cost.window_joins import JoinLoad
from headrace.definitions.definition import (
    Definition,
    Sql,
    all_of,
    any_of,
    call,
    column,
    held,
    keep,
    millis,
    named,
    number,
    qualify,
    select,
    union_all,
    window_struct,
)
from headrace.definitions.join_shape import JoinShape, key_condition
from headrace.definitions.join_tree import join_in_order
from headrace.definitions.windows import WINDOW_START, Ends, expand
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import NEW, old_and_new
from headrace.operators.rows.row_store import StoredRows
from headrace.optimizer.joins.search import join_cost, runs_as_written
from headrace.plan.join_graph import order_text
from headrace.plan.json import plan_hash
from headrace.plan.nodes import WINDOW_COLUMN, Join, Order, SameWindow
from headrace.plan.types import Schema
from headrace.plan.windows import Hopping
from headrace.planner.join_order import InputCardinality, choose_join_orders, written_order
from headrace.planner.joined_rows import JoinRun
from headrace.planner.policy import PlannerPolicy


@dataclass(frozen=True)
class JoinInput:
    """One input: how it is read, its columns as the join names them, and its time column.

    ``lives`` are the columns by which its rows expire in a join without a condition on time.
    ``keys`` are the columns of its store that are keys of the join, by the position of their class.
    """

    rows: StoredRows
    schema: Schema
    time: str
    lives: Mapping[str, int] = field(default_factory=dict)
    keys: tuple[tuple[int, str | None], ...] = ()


class DeltaJoin(Operator):
    """An inner join of two or more streams."""

    def __init__(
        self,
        node: Join,
        inputs: tuple[JoinInput, ...],
        sources: tuple[Operator, ...],
        shape: JoinShape,
        streams: frozenset[str],
        policy: PlannerPolicy,
    ) -> None:
        if node.emits_window and len(inputs) != 2:
            raise AssertionError("a join that emits its windows has two inputs")
        self.node: Join = node
        self._inputs = inputs
        self._sources = sources
        self._shape = shape
        self._graph = shape.graph
        self._streams = streams
        self._policy = policy

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._sources

    @cached_property
    def identity(self) -> str:
        return plan_hash(self.node)

    def delta(self, epoch: Epoch) -> Definition | None:
        if not any(source.rows.new_span(epoch) for source in self._inputs):
            return None
        counted = self._counted(epoch)
        passes = choose_join_orders(
            self._graph,
            self.identity,
            self.node.order,
            counted,
            self._policy,
            epoch.statistics,
            epoch.choices,
        )
        if passes.whole is not None:
            terms = [self._one_pass(epoch, passes.whole.order, counted)]
        else:
            terms = [self._term(epoch, i, term.order, counted) for i, term in passes.terms.items()]
        queries = [query for query in terms if query is not None]
        return Definition(union_all(queries), self.node.schema) if queries else None

    # Which rows can take part

    def _spans(self, epoch: Epoch, drivers: list[int]) -> list[tuple[int | None, int | None]]:
        """For each input, where rows lie that new rows of the drivers may meet."""
        spans: list[tuple[int | None, int | None]] = []
        for index in range(len(self._inputs)):
            begins: list[int | None] = []
            ends: list[int | None] = []
            for driver in drivers:
                span = self._inputs[driver].rows.new_span(epoch)
                if span is not None:
                    begin, end = self._graph.reaches[driver][index].span(*span)
                    begins.append(begin)
                    ends.append(end)
            slack = len(self._inputs)
            spans.append(
                (
                    # Without a span all new rows lack a time, and meet nobody wherever they look.
                    None
                    if not begins or None in begins
                    else min(b for b in begins if b is not None) - slack,
                    None
                    if not ends or None in ends
                    else max(e for e in ends if e is not None) + slack,
                )
            )
        return spans

    def _counted(self, epoch: Epoch) -> InputCardinality:
        """The rows that can take part, as far as the files tell, and their keys."""
        everyone = list(range(len(self._inputs)))
        spans = self._spans(epoch, everyone)
        names = [source.rows.store.name for source in self._inputs]
        shares = [source.rows.share(epoch) for source in self._inputs]
        new = [
            _part(sum(f.rows for f in epoch.new_files(name)), share)
            for name, share in zip(names, shares, strict=True)
        ]
        total = [
            _part(epoch.rows(name, *span), share)
            for name, share, span in zip(names, shares, spans, strict=True)
        ]
        edges = [
            edge
            for name, span in zip(names, spans, strict=True)
            for edge in epoch.times(name, *span)
        ]
        fresh = [s for source in self._inputs if (s := source.rows.new_span(epoch)) is not None]
        edges += [edge for span in fresh for edge in span]
        counted = InputCardinality(
            tuple(new),
            tuple(max(0, t - n) for t, n in zip(total, new, strict=True)),
            {
                (index, position): None
                if name is None
                else epoch.statistics.keys.get((names[index], name))
                for index, source in enumerate(self._inputs)
                for position, name in source.keys
            },
            float(max(1, max(edges) - min(edges))),
            {
                (index, position): epoch.statistics.frequent.get((names[index], name), {})
                for index, source in enumerate(self._inputs)
                for position, name in source.keys
                if name is not None
            },
            {
                inputs: match.share
                for inputs, match in epoch.statistics.matches.get(self.identity, {}).items()
            },
        )
        return counted.completed(self._graph)

    def _one_pass(self, epoch: Epoch, order: Order, counted: InputCardinality) -> exp.Query | None:
        """Everything that can take part, without the results that are not new."""
        spans = self._spans(epoch, list(range(len(self._inputs))))
        inputs: dict[int, exp.Select] = {}
        some_old = False
        for index, source in enumerate(self._inputs):
            old, new = source.rows.old(epoch, *spans[index]), source.rows.new(epoch)
            rows = old_and_new(old, new, mark=True)
            if rows is None:
                return None
            marked = Definition(rows, source.rows.schema)
            named_rows = qualify(marked, source.schema, {_flag(index): column(NEW)})
            inputs[index] = self._alive(named_rows, index, epoch)
            some_old |= old is not None
        joined = self._joined(epoch, None, order, inputs, counted.load())
        is_new = exp.paren(any_of(column(_flag(index)) for index in inputs))
        return select(joined, keep(self.node.schema.names), [is_new] if some_old else [])

    def _term(
        self, epoch: Epoch, driver: int, order: Order, counted: InputCardinality
    ) -> exp.Query | None:
        """New rows of one input against the others."""
        spans = self._spans(epoch, [driver])
        inputs: dict[int, exp.Select] = {}
        for index, source in enumerate(self._inputs):
            old = None if index == driver else source.rows.old(epoch, *spans[index])
            new = None if index < driver else source.rows.new(epoch)
            rows = old_and_new(old, new, mark=False)
            if rows is None:
                return None
            named_rows = qualify(Definition(rows, source.rows.schema), source.schema)
            inputs[index] = self._alive(named_rows, index, epoch)
        joined = self._joined(epoch, driver, order, inputs, counted.load(driver))
        return select(joined, keep(self.node.schema.names))

    def _alive(self, rows: exp.Select, index: int, epoch: Epoch) -> exp.Select:
        watermark = epoch.before(self._streams)
        if watermark is None:
            return rows
        alive: list[Sql] = []
        for name, ttl in self._inputs[index].lives.items():
            at = column(name)
            # A side of an outer join that found no partner has no time, and does not expire.
            alone = exp.Is(this=at, expression=exp.Null())
            oldest = call("timestamp_millis", number(watermark - ttl))
            alive.append(exp.paren(exp.or_(at.copy() >= oldest, alone, copy=False)))
        return select(rows, None, alive) if alive else rows

    # How they are joined

    def _joined(
        self,
        epoch: Epoch,
        driver: int | None,
        order: Order,
        inputs: dict[int, exp.Select],
        load: JoinLoad,
    ) -> exp.Select:
        """All inputs, in one pass, whose rows carry a flag for those that are new, or new rows of
        one."""
        if isinstance(self.node.time, SameWindow) and self.node.emits_window:
            return self._join_per_window(inputs, self.node.time.window, marked=driver is None)
        costs = join_cost(self._graph, load)

        def size(part: frozenset[int]) -> float:
            return costs.rows(sum(1 << index for index in part))

        label, rows_of_steps = epoch.inputs.watch_join()
        written = written_order(self._graph, driver)
        is_chosen = (
            self.node.order is None
            and self._policy.reorder_joins
            and not runs_as_written(self._graph)
        )
        epoch.joins.append(
            JoinRun(
                self.identity, self._graph, driver, order, written, load, is_chosen, rows_of_steps
            )
        )
        return join_in_order(self._shape, order, inputs, size, label)

    def _join_per_window(
        self, inputs: dict[int, exp.Select], window: Hopping, marked: bool
    ) -> exp.Select:
        """Once per common window: both sides are placed in all of their windows."""
        sides = []
        for index, name in ((0, "__left_start"), (1, "__right_start")):
            source = self._inputs[index]
            placed = expand(
                inputs[index], millis(column(source.time)), {0: window}, Ends(None, None)
            )
            names = (*source.schema.names, *((_flag(index),) if marked else ()))
            sides.append(select(placed, {**keep(names), name: column(WINDOW_START)}))
        on: list[Sql] = [
            exp.EQ(this=column("__left_start"), expression=column("__right_start")),
            *(key_condition(edge.left_key, edge.right_key) for edge in self._graph.keys),
            *self._shape.certain,
        ]
        pairs = (
            exp.Select(expressions=[exp.Star()])
            .from_(sides[0].subquery("l", copy=False), copy=False)
            .join(sides[1].subquery("r", copy=False), on=all_of(on), join_type="inner", copy=False)
        )
        last = self._shape.last
        if last is not None:
            pairs = select(held(pairs, "__pairs"), None, [last])
        start = column("__left_start")
        span = window_struct(start, start.copy() + number(window.length))
        return select(pairs, None).select(named(span, WINDOW_COLUMN), copy=False)

    def steps(self) -> tuple[EpochStep, ...]:
        names = ", ".join(self._graph.names)
        if self.node.order is not None:
            line = f"in the order {order_text(self.node.order, self._graph.names)}, as asked for"
        elif (
            self._policy.reorder_joins
            and len(self._inputs) > 1
            and not runs_as_written(self._graph)
        ):
            line = "in the order that costs least in that epoch"
        else:
            line = f"in the order {order_text(self._graph.written, self._graph.names)}, as written"
        return (EpochStep(f"delta join of {names}", (line,)),)


def _part(rows: int, share: float) -> int:
    """Rows that a filter leaves: where there are some, it may leave one."""
    return max(1, round(rows * share)) if rows else 0


def _flag(index: int) -> str:
    """The column that tells new rows of an input from old ones."""
    return f"{NEW}{index}"
