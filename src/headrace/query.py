"""Queries as users hold them: a plan, a writer with PySpark's names, and a handle while it runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from headrace.engine.engine import Engine
from headrace.engine.introspection.progress import QueryState
from headrace.engine.policy import planner_policy
from headrace.errors import HeadraceError, QueryError
from headrace.explain import Explanation, explain
from headrace.names import query_name_advice
from headrace.optimizer import RULES, Optimized, optimize
from headrace.optimizer.early.describe import DescribedEarly
from headrace.optimizer.early.shape import with_early
from headrace.optimizer.joins.describe import (
    fixed_joins,
    parse_order,
)
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import join_graph, topmost_joins, with_order
from headrace.plan.nodes import Node, OutputMode, Sink
from headrace.plan.output_modes import natural_mode, output_modes
from headrace.plan.text import plan_text
from headrace.plan.types import Schema
from headrace.planner import early_aggregation
from headrace.planner.decision import RankedPlan
from headrace.planner.explaining import ranked_plans, sections
from headrace.redaction import conceal_options
from headrace.sql.views import View
from headrace.stats.catalog import Statistics

_unnamed = itertools.count(1)


def _as_sink(plan: Node) -> Sink:
    """A plan as the query that would run."""
    return Sink(plan, "query", "results", natural_mode(plan))


class Query:
    """A standing query that has a meaning and a plan, but does not run yet."""

    def __init__(
        self,
        engine: Engine,
        statistics: Callable[[], Statistics],
        logical: Node,
        forced: Node | None = None,
        views: tuple[View, ...] = (),
        checked: Optimized | None = None,
    ) -> None:
        self._engine = engine
        self._statistics = statistics
        self._forced = forced
        self._views = views
        self._checked = checked
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
            return Optimized(self._forced, optimize(self._forced, frozenset(RULES)).trace)
        return self._checked or optimize(self.plan, self._engine.settings.disabled_rules)

    def explain(self, extended: bool | str | None = None, mode: str | None = None) -> None:
        """Print the plan, as in PySpark. Modes: simple, extended, cost, json, dot."""
        print(self.explanation(_mode(extended, mode)))

    def explanation(self, mode: str = "simple") -> str:
        """What :meth:`explain` prints."""
        optimized = self.optimized
        explained = self._engine.explaining.beside_others(_as_sink(optimized.plan))
        ranked = [entry.info for entry in self.alternatives()]
        described = Explanation(
            self.plan,
            optimized,
            explained.steps,
            ranked,
            self._statistics(),
            sections(explained.planned),
            explained.executors,
            views=self._views,
        )
        return explain(described, mode)

    def alternatives(self) -> list[RankedPlan]:
        """The valid plans, cheapest first where costs are known, with the rule behind each."""
        full = optimize(self.plan, self._engine.settings.disabled_rules).plan
        planned = self._engine.explaining.alone(full, _as_sink(full))
        return ranked_plans(self.plan, self.optimized, self._forced is not None, planned)

    def aggregated_early(self, *inputs: str) -> Query:
        """The same query with just these inputs of its join aggregated before the join, by their
        aliases; without any it is aggregated after it. What cannot be is refused, with the reason.
        """
        plan = self.optimized.plan
        explaining = self._engine.explaining
        for early in early_aggregation.describe(explaining.alone(plan, _as_sink(plan))):
            if isinstance(early, DescribedEarly):
                forced = with_early(plan, early.shape.node, ", ".join(inputs) or "none")
                explaining.alone(forced, _as_sink(forced))
                return self._with_plan(forced)
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
        disabled = planner_policy(self._engine.settings).disabled_join_rules
        for join in topmost_joins(plan):
            graph = join_graph(join)
            wanted = parse_order(graph, order)
            if isinstance(wanted, str):
                reasons.append(wanted)
                continue
            steps = steps_of(graph, wanted, disabled)
            if isinstance(steps, InvalidOrder):
                reasons.append(steps.reason)
                continue
            return self._with_plan(with_order(plan, join, wanted))
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
        return self._with_plan(alternative.plan)

    def _with_plan(self, forced: Node) -> Query:
        return Query(self._engine, self._statistics, self.plan, forced, self._views)

    def alone(self) -> Query:
        """The same query for whoever must not see what others run: it is explained as if nothing
        else ran. It cannot be started."""
        nobody = Engine(self._engine.spark, None, self._engine.settings)
        return Query(nobody, self._statistics, self.plan, self._forced, self._views)

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

    def called_inside(self, name: str) -> QueryWriter:
        """Let the engine call the query by a name that users cannot give."""
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
    def sink(self) -> Sink:
        return self._sink

    @property
    def schema(self) -> Schema:
        return self._sink.schema

    @property
    def isActive(self) -> bool:
        return self._state.active

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing, and from which time on it sees every row, if not from the start."""
        return self._state.status()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self._state.last_progress

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return self._state.recent_progress

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


def _mode(extended: bool | str | None, mode: str | None) -> str:
    """PySpark takes ``explain(True)``, ``explain("cost")`` and ``explain(mode="cost")``."""
    if mode is not None:
        return mode
    if isinstance(extended, str):
        return extended
    return "extended" if extended else "simple"
