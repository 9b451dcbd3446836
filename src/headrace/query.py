"""Queries as users hold them: a plan, a writer with PySpark's names, and a handle while it runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headrace.cost.early_aggregation import plan_name
from headrace.cost.rows import flow_cost
from headrace.engine.engine import Engine
from headrace.engine.introspection.progress import QueryState
from headrace.errors import HeadraceError, QueryError
from headrace.explain import Alternative, Explanation, explain
from headrace.names import query_name_advice
from headrace.optimizer import Optimized, optimize
from headrace.optimizer.early.describe import DescribedEarly
from headrace.optimizer.early.shape import with_early
from headrace.optimizer.joins.describe import (
    DescribedJoin,
    fixed_joins,
    hourly_cost,
    parse_order,
)
from headrace.optimizer.joins.search import JoinOrder
from headrace.optimizer.joins.steps import Refusal, steps_of
from headrace.optimizer.probing.describe import DescribedProbes, order_cost
from headrace.optimizer.windows.layout import Sharing
from headrace.plan.join_graph import inputs_of, join_graph, topmost_joins, with_order
from headrace.plan.nodes import Node, OutputMode, Sink
from headrace.plan.output_modes import natural_mode, output_modes
from headrace.plan.text import plan_text
from headrace.plan.types import Schema
from headrace.planner.pane_layout import forced_sharings
from headrace.planner.policy import join_policy
from headrace.redaction import conceal_options
from headrace.stats.catalog import Statistics


def _order_reason(order: JoinOrder) -> str:
    steps = [step for step in order.steps if step.implied is not None]
    if not steps:
        return "each pair by a condition of the query"
    return "a pair by what its other conditions imply"


_unnamed = itertools.count(1)


def _as_sink(plan: Node) -> Sink:
    """A plan as the query that would run."""
    return Sink(plan, "query", "results", natural_mode(plan))


@dataclass(frozen=True)
class RankedPlan:
    """A valid plan of a query, as :meth:`Query.alternatives` lists it."""

    info: Alternative
    plan: Node

    def __str__(self) -> str:
        mark = "*" if self.info.chosen else " "
        return (
            f"{mark} {self.info.name}: cost {self.info.cost} ({self.info.rule}) {self.info.reason}"
        )


class Query:
    """A standing query that has a meaning and a plan, but does not run yet."""

    def __init__(
        self,
        engine: Engine,
        statistics: Callable[[], Statistics],
        logical: Node,
        forced: Node | None = None,
    ) -> None:
        self._engine = engine
        self._statistics = statistics
        self._forced = forced
        self.plan = logical

    @property
    def schema(self) -> Schema:
        return self.plan.schema

    @property
    def columns(self) -> list[str]:
        return list(self.plan.schema.names)

    @property
    def optimized(self) -> Optimized:
        """The plan that runs, and which rules made it."""
        if self._forced is not None:
            return Optimized(self._forced, optimize(self._forced, frozenset(_all_rules())).trace)
        return optimize(self.plan, self._engine.settings.disabled_rules)

    def explain(self, extended: bool | str | None = None, mode: str | None = None) -> None:
        """Print the plan, as in PySpark. Modes: simple, extended, cost, json, dot."""
        print(self.explanation(_mode(extended, mode)))

    def explanation(self, mode: str = "simple") -> str:
        """What :meth:`explain` prints."""
        optimized = self.optimized
        sink = _as_sink(optimized.plan)
        steps: list[Any] = self._engine.explaining.steps(sink)
        ranked = [entry.info for entry in self.alternatives()]
        described = Explanation(
            self.plan,
            optimized,
            steps,
            ranked,
            self._statistics(),
            self._engine.explaining.windows(sink),
            self._engine.explaining.joins(optimized.plan),
            self._engine.explaining.early(sink),
            self._engine.explaining.executors(sink),
        )
        return explain(described, mode)

    def alternatives(self) -> list[RankedPlan]:
        """The valid plans, cheapest first where costs are known, with the rule behind each."""
        optimized = self.optimized
        disabled = self._engine.settings.disabled_rules
        found: dict[Node, RankedPlan] = {}

        def add(name: str, plan: Node, rule: str, reason: str) -> None:
            if plan not in found:
                chosen = plan == optimized.plan
                cost = flow_cost(plan, self._statistics())
                found[plan] = RankedPlan(Alternative(name, cost, rule, chosen, reason), plan)

        why = "forced by the user" if self._forced is not None else "all rules applied"
        add("chosen", optimized.plan, "using" if self._forced else "all", why)
        full = optimize(self.plan, disabled)
        add("optimized", full.plan, "all", "all rules applied")
        for rule in full.trace.fired:
            plan = optimize(self.plan, disabled | {rule}).plan
            add(f"without {rule}", plan, rule, "this rule left out")
        add("as written", self.plan, "none", "no rule applied")
        for forced in forced_sharings(full.plan, self._engine.loads):
            info = Alternative(
                f"windows share: {forced.sharing.value}",
                forced.cost,
                "factor_windows",
                forced.plan == optimized.plan,
                _SHARING_REASONS[forced.sharing],
            )
            found.setdefault(forced.plan, RankedPlan(info, forced.plan))
        for joins in self._engine.explaining.joins(full.plan):
            if isinstance(joins, DescribedJoin):
                for order in joins.orders:
                    plan = with_order(full.plan, joins.join, order.order)
                    chosen = order is joins.chosen and optimized.plan == full.plan
                    info = Alternative(
                        f"join order {joins.name(order)}",
                        hourly_cost(order),
                        ", ".join(order.rules) or "none",
                        chosen or plan == optimized.plan,
                        _order_reason(order),
                    )
                    found.setdefault(plan, RankedPlan(info, plan))
            elif isinstance(joins, DescribedProbes):
                for sequence, probed in joins.alternatives.items():
                    plan = with_order(full.plan, joins.join, sequence)
                    info = Alternative(
                        f"probe order {', '.join(joins.names[i] for i in inputs_of(sequence))}",
                        order_cost(probed),
                        "probe_order",
                        plan == optimized.plan,
                        "new rows of each input probe the others in this order",
                    )
                    found.setdefault(plan, RankedPlan(info, plan))
        for early in self._engine.explaining.early(_as_sink(full.plan)):
            if isinstance(early, DescribedEarly) and not early.forced:
                for choice in early.plans:
                    names = early.name(choice) if choice else "none"
                    plan = with_early(full.plan, early.shape.node, names)
                    info = Alternative(
                        f"aggregated early: {early.name(choice)}",
                        early.cost(choice),
                        "early_aggregation",
                        plan == optimized.plan or (choice == early.chosen and not self._forced),
                        f"{plan_name(choice, len(early.shape.names))} of the paper",
                    )
                    found.setdefault(plan, RankedPlan(info, plan))
        return list(found.values())

    def aggregated_early(self, *inputs: str) -> Query:
        """The same query with just these inputs of its join aggregated before the join, by their
        aliases; without any it is aggregated after it. What cannot be is refused, with the reason.
        """
        plan = self.optimized.plan
        for early in self._engine.explaining.early(_as_sink(plan)):
            if isinstance(early, DescribedEarly):
                forced = with_early(plan, early.shape.node, ", ".join(inputs) or "none")
                query = Query(self._engine, self._statistics, self.plan, forced)
                self._engine.explaining.early(_as_sink(forced))
                return query
            raise QueryError(
                f"the query cannot be aggregated early: {early.reason}",
                condition="INVALID_EARLY_AGGREGATION",
            )
        raise QueryError(
            "the query cannot be aggregated early: it has no aggregate over a join",
            condition="INVALID_EARLY_AGGREGATION",
        )

    def in_order(self, *order: object) -> Query:
        """The same query with its joins in this order, given by the aliases of their inputs.

        ``in_order("a", "c", "b")`` joins a with c and then b, ``in_order(("a", "b"), ("c", "d"))``
        two joins with each other. An order that is not valid is refused, and the reason told.
        """
        plan = self.optimized.plan
        reasons: list[str] = []
        for join in topmost_joins(plan):
            graph = join_graph(join)
            wanted = parse_order(graph, order)
            if isinstance(wanted, str):
                reasons.append(wanted)
                continue
            steps = steps_of(graph, wanted, join_policy(self._engine.settings).disabled)
            if isinstance(steps, Refusal):
                reasons.append(steps.reason)
                continue
            return Query(self._engine, self._statistics, self.plan, with_order(plan, join, wanted))
        reasons = [*fixed_joins(plan), *reasons] or ["the query joins no streams"]
        raise QueryError(
            f"the joins cannot run in that order: {reasons[0]}",
            hint="explain() lists the valid orders",
            condition="INVALID_JOIN_ORDER",
        )

    def using(self, alternative: RankedPlan) -> Query:
        """The same query, with this plan whatever the optimizer thinks of it."""
        if alternative not in self.alternatives():
            raise QueryError(
                "that alternative belongs to another query", hint="take one of alternatives()"
            )
        return Query(self._engine, self._statistics, self.plan, alternative.plan)

    @property
    def writeStream(self) -> QueryWriter:
        return QueryWriter(self)

    def __str__(self) -> str:
        return plan_text(self.plan)

    def __repr__(self) -> str:
        return f"Query[{self.plan.schema}]"


class QueryWriter:
    """PySpark's ``DataStreamWriter`` for a Headrace query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._name: str | None = None
        self._format: str | None = None
        self._mode: OutputMode | None = None
        self._options: dict[str, str] = {}
        self._function: Callable[[DataFrame, int], None] | None = None

    def queryName(self, name: str) -> QueryWriter:
        advice = query_name_advice(name)
        if advice is not None:
            raise QueryError(f"{name!r} is no name for a query", hint=advice)
        self._name = name
        return self

    def format(self, source: str) -> QueryWriter:
        self._format = source
        return self

    def outputMode(self, mode: str) -> QueryWriter:
        try:
            self._mode = OutputMode(mode.lower())
        except ValueError:
            raise QueryError(f"no output mode {mode!r}", hint="use 'append' or 'update'") from None
        return self

    def option(self, key: str, value: object) -> QueryWriter:
        self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: object) -> QueryWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> QueryWriter:
        self._format, self._function = "foreachBatch", func
        return self

    def start(self, path: str | None = None) -> QueryHandle:
        """Let the query join: at once if the engine runs, else when it starts."""
        if path is not None:
            self._options["path"] = path
        conceal_options(self._options)
        engine, plan = self._query._engine, self._query.optimized.plan
        sink = Sink(
            plan,
            self._name or f"query-{next(_unnamed)}",
            self._format or ("parquet" if "path" in self._options else "results"),
            self._output_mode(plan),
            tuple(sorted(self._options.items())),
        )
        return QueryHandle(engine, sink, engine.add_query(self._query.plan, sink, self._function))

    def _output_mode(self, plan: Node) -> OutputMode:
        mode, possible = self._mode or natural_mode(plan), output_modes(plan)
        if mode in possible:
            return mode
        reason, other = _WRONG_MODES[mode]
        raise QueryError(reason, hint=f"use outputMode({other!r})", condition="OUTPUT_MODE")


class QueryHandle:
    """A query that was started, with PySpark's names where Spark has such a thing."""

    def __init__(self, engine: Engine, sink: Sink, state: QueryState) -> None:
        self._engine = engine
        self._sink = sink
        self._state = state

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def isActive(self) -> bool:
        return self._state.active

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing, and from which time on it sees every row, if not from the start."""
        return self._state.status()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self._state.reports[-1] if self._state.reports else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return list(self._state.reports)

    def exception(self) -> HeadraceError | None:
        """Why it failed, or None."""
        return self._state.error

    def stop(self) -> None:
        """Leave the engine; the other queries go on."""
        self._engine.remove_query(self.name)

    def __repr__(self) -> str:
        return f"QueryHandle[{self.name}: {self._state.message}]"


_WRONG_MODES = {
    OutputMode.APPEND: ("a landmark never ends, so its results are never final", "update"),
    OutputMode.UPDATE: (
        "sessions cannot be written in update mode, because sessions merge",
        "append",
    ),
}

_SHARING_REASONS = {
    Sharing.NONE: "each window from panes of its own",
    Sharing.WINDOWS: "windows from other windows that were asked for",
    Sharing.FACTORS: "auxiliary windows where they pay",
}


def _all_rules() -> list[str]:
    from headrace.optimizer import RULES

    return list(RULES)


def _mode(extended: bool | str | None, mode: str | None) -> str:
    """PySpark takes ``explain(True)``, ``explain("cost")`` and ``explain(mode="cost")``."""
    if mode is not None:
        return mode
    if isinstance(extended, str):
        return extended
    return "extended" if extended else "simple"
