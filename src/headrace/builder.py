"""Queries built without SQL text, with PySpark's names.

A :class:`QueryBuilder` holds the syntax of a query. Its methods add clauses where SQL would have
them in the same SELECT, and make a derived table where it would not; the plan then comes from the
same binder that reads SQL text, so both ways give the same plan. Each step is checked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from headrace import functions
from headrace.functions import Column, to_node
from headrace.names import folded, known_as, same_name
from headrace.plan.depth import too_deep
from headrace.plan.nodes import Node
from headrace.plan.types import Schema
from headrace.sql import Catalog, FunctionTypes
from headrace.sql.functions_table import AGGREGATE_SYNONYMS, AGGREGATES
from headrace.sql.literals import Zone
from headrace.sql.query import QueryBinder, require_stream
from headrace.sql.refusals import refuse
from headrace.sql.views import View, with_those_below

#: Turns a plan, and the views that it reads, into a query of the session.
MakeQuery = Callable[[Node, tuple[View, ...]], Any]

_HOW = {
    "inner": ("", ""),
    "left": ("LEFT", ""),
    "leftouter": ("LEFT", ""),
    "right": ("RIGHT", ""),
    "rightouter": ("RIGHT", ""),
    "outer": ("FULL", ""),
    "full": ("FULL", ""),
    "fullouter": ("FULL", ""),
    "cross": ("", "CROSS"),
    "semi": ("LEFT", "SEMI"),
    "leftsemi": ("LEFT", "SEMI"),
    "anti": ("LEFT", "ANTI"),
    "leftanti": ("LEFT", "ANTI"),
}


@dataclass(frozen=True)
class BuilderContext:
    """What every builder of a session needs."""

    catalog: Catalog
    make_query: MakeQuery | None = None
    functions: FunctionTypes | None = None
    time_zone: Zone = None

    def binder(self) -> QueryBinder:
        return QueryBinder(self.catalog, self.functions, self.time_zone)


@dataclass(frozen=True)
class QueryBuilder:
    """A query under construction; every method gives a new one.

    ``projected`` says that the SELECT list is chosen, so a further step needs a derived table.
    ``checked`` is the plan so far: of a join, before its columns are chosen.
    """

    context: BuilderContext
    syntax: exp.Query
    checked: Node
    name: str | None = None
    projected: bool = False

    @classmethod
    def read(
        cls,
        name: str,
        catalog: Catalog,
        make_query: MakeQuery | None = None,
        function_type: FunctionTypes | None = None,
        time_zone: Zone = None,
    ) -> QueryBuilder:
        """A stream, a table or a view to begin with."""
        context = BuilderContext(catalog, make_query, function_type, time_zone)
        table = exp.Table(this=exp.to_identifier(name, quoted=True))
        select = exp.Select(expressions=[exp.Star()]).from_(table)
        return cls(context, select, context.binder().bind(select))

    # What it is

    @property
    def plan(self) -> Node:
        """The plan, which is that of the same query in SQL."""
        try:
            return self.context.binder().bind(self.syntax)
        except RecursionError:
            raise too_deep() from None

    @property
    def schema(self) -> Schema:
        """The columns; those of a join carry the alias of their side."""
        return self.checked.schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        return [(field.name, field.type.name) for field in self.schema]

    def printSchema(self) -> None:
        print("root")
        for field in self.schema:
            print(f" |-- {field.name}: {field.type}")

    # What becomes of it

    def query(self) -> Any:
        """The session's query, which can be explained, written and started."""
        binder = self.context.binder()
        plan = binder.bind(self.syntax)
        require_stream(plan, self.syntax)
        if self.context.make_query is None:
            refuse(
                "INVALID_BUILDER_CALL",
                None,
                what_it_is="this query belongs to no session",
                advice="begin with hr.read(name)",
            )
        return self.context.make_query(plan, with_those_below(binder.views.values()))

    @property
    def writeStream(self) -> Any:
        return self.query().writeStream

    def explain(self, mode: str = "simple") -> None:
        self.query().explain(mode)

    # Rows

    def where(self, condition: Column | str) -> QueryBuilder:
        """The rows that meet a condition; after an aggregation, the groups that do."""
        node = self._node(condition)
        if isinstance(self.syntax, exp.Select) and self.syntax.args.get("group"):
            return self._having(node)
        block = self._open_block()
        return block._with(block._select().where(node, copy=False), projected=False)

    filter = where

    def _having(self, condition: exp.Expr) -> QueryBuilder:
        """A condition on groups names columns of the result; HAVING wants what they stand for."""
        select = self._select()
        shown = [folded(name) for name in self.columns]
        meaning = dict(zip(shown, map(_unaliased, select.expressions), strict=True))

        def written_out(node: exp.Expr) -> exp.Expr:
            name = folded(node.name) if isinstance(node, exp.Column) and not node.table else None
            return meaning[name].copy() if name in meaning else node

        return self._with(select.having(condition.transform(written_out), copy=False))

    # Columns

    def select(self, *columns: Column | str | list[Any]) -> QueryBuilder:
        items = [self._node(c) for c in _flat(columns)]
        return self._chosen(items)

    def selectExpr(self, *texts: str) -> QueryBuilder:
        return self._chosen([functions.expr(text).node for text in texts])

    def withColumn(self, colName: str, col: Column | str) -> QueryBuilder:
        """All columns and this one, which replaces a column of the same name."""
        added = functions.Column(self._node(col)).alias(colName).node
        items = [added if same_name(name, colName) else self._shown(name) for name in self.columns]
        if not any(same_name(name, colName) for name in self.columns):
            items.append(added)
        return self._chosen(items)

    def withColumnRenamed(self, existing: str, new: str) -> QueryBuilder:
        items = [
            functions.Column(self._shown(name)).alias(new).node
            if same_name(name, existing)
            else self._shown(name)
            for name in self.columns
        ]
        return self._chosen(items)

    def drop(self, *names: str) -> QueryBuilder:
        remaining = [n for n in self.columns if not any(same_name(n, gone) for gone in names)]
        return self._chosen([self._shown(name) for name in remaining])

    def _chosen(self, items: list[exp.Expr]) -> QueryBuilder:
        block = self._open_block()
        select = block._select()
        select.set("expressions", items)
        return block._with(select, projected=True)

    # Groups

    def groupBy(self, *columns: Column | str | list[Any]) -> GroupedQueryBuilder:
        """Groups; one of the columns must be a window."""
        block = self._open_block()
        return GroupedQueryBuilder(block, tuple(block._node(c) for c in _flat(columns)))

    groupby = groupBy

    # Several builders

    def alias(self, name: str) -> QueryBuilder:
        """The query so far under a name, for the conditions of a join."""
        return replace(self, name=name)

    def join(
        self, other: QueryBuilder, on: Column | str | list[str] | None = None, how: str = "inner"
    ) -> QueryBuilder:
        """A join on a condition, or on columns of the same name."""
        key = how.lower().replace("_", "").replace(" ", "")
        if key not in _HOW:
            refuse(
                "INVALID_BUILDER_CALL",
                None,
                what_it_is=f"unknown kind of join {how!r}",
                advice=f"use one of {', '.join(_HOW)}",
            )
        side, kind = _HOW[key]
        join = exp.Join(this=other._as_source(), side=side or None, kind=kind or None)
        names = _names(on)
        if names is not None:
            join.set("using", [exp.to_identifier(name, quoted=True) for name in names])
        elif on is not None:
            join.set("on", to_node(on))
        if self._is_bare_join():
            select = self._select()
        else:
            select = exp.Select(expressions=[exp.Star()]).from_(self._as_source())
        select.append("joins", join)
        return replace(self, name=None)._with(select, projected=False)

    def union(self, other: QueryBuilder) -> QueryBuilder:
        """All rows of both, columns matched by position."""
        both = exp.Union(this=self.syntax.copy(), expression=other.syntax.copy(), distinct=False)
        return self._with(both, projected=True)

    def unionAll(self, other: QueryBuilder) -> QueryBuilder:
        return self.union(other)

    def _is_bare_join(self) -> bool:
        joins = isinstance(self.syntax, exp.Select) and self.syntax.args.get("joins")
        return bool(joins) and self._is_bare()

    def _is_bare(self) -> bool:
        """Whether nothing was done yet to what it reads."""
        select = self.syntax
        return (
            isinstance(select, exp.Select)
            and not self.projected
            and not any(select.args.get(key) for key in ("where", "group", "having"))
        )

    def _as_source(self) -> exp.Expr:
        """The query so far as an input of FROM or JOIN."""
        if self._is_bare() and not self._is_bare_join():
            table: exp.Expr = self._select().args["from_"].this.copy()
            if self.name is not None:
                return exp.alias_(table, self.name, table=True, quoted=True)
            return table
        alias = exp.TableAlias(
            this=exp.to_identifier(self.name or self._default_name(), quoted=True)
        )
        return exp.Subquery(this=self.syntax.copy(), alias=alias)

    def _default_name(self) -> str:
        """What a derived table is called where nobody named it: its stream, as in SQL."""
        sources = [t.name for t in self.syntax.find_all(exp.Table)]
        return sources[0] if len(sources) == 1 else "subquery"

    # How clauses are added

    def _select(self) -> exp.Select:
        assert isinstance(self.syntax, exp.Select)
        copy = self.syntax.copy()
        assert isinstance(copy, exp.Select)
        return copy

    def _open_block(self) -> QueryBuilder:
        """This one, or a derived table of it where its SELECT list is chosen already."""
        if isinstance(self.syntax, exp.Select) and not self.projected:
            return self
        alias = self.name or self._default_name()
        subquery = exp.Subquery(
            this=self.syntax.copy(),
            alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)),
        )
        select = exp.Select(expressions=[exp.Star()]).from_(subquery)
        return QueryBuilder(self.context, select, self.checked, None, projected=False)

    def _with(self, syntax: exp.Query, projected: bool | None = None) -> QueryBuilder:
        """The builder with other syntax, bound anew."""
        chosen = self.projected if projected is None else projected
        binder = self.context.binder()
        if isinstance(syntax, exp.Select) and syntax.args.get("joins") and not chosen:
            return QueryBuilder(self.context, syntax, binder.source(syntax), self.name, chosen)
        return QueryBuilder(self.context, syntax, binder.bind(syntax), self.name, chosen)

    def _shown(self, name: str) -> exp.Expr:
        """A column of it by the name that ``columns`` gives."""
        open_join = isinstance(self.syntax, exp.Select) and self.syntax.args.get("joins")
        return functions.col(name).node if open_join and not self.projected else _column(name)

    def _node(self, value: Any) -> exp.Expr:
        """A column, or text: the name of a column where it is one, SQL otherwise."""
        column = known_as(value, self.columns) if isinstance(value, str) else None
        return to_node(value) if column is None else self._shown(column)


@dataclass(frozen=True)
class GroupedQueryBuilder:
    """Groups that wait for their aggregates."""

    builder: QueryBuilder
    keys: tuple[exp.Expr, ...]

    def agg(self, *aggregates: Column | str | dict[str, str]) -> QueryBuilder:
        """The groups with these aggregates; the result has the keys, the window, and them."""
        items: list[exp.Expr] = []
        for aggregate in aggregates:
            if isinstance(aggregate, dict):
                items += [
                    functions.call_function(name, column).node for column, name in aggregate.items()
                ]
            else:
                items.append(to_node(aggregate))
        select = self.builder._select()
        select.set("expressions", [*self._shown_keys(), *items])
        select.set("group", exp.Group(expressions=[_unaliased(key).copy() for key in self.keys]))
        return self.builder._with(select, projected=True)

    def count(self) -> QueryBuilder:
        return self.agg(functions.count("*").alias("count"))

    def sum(self, *columns: str) -> QueryBuilder:
        return self._each("sum", columns)

    def avg(self, *columns: str) -> QueryBuilder:
        return self._each("avg", columns)

    mean = avg

    def min(self, *columns: str) -> QueryBuilder:
        return self._each("min", columns)

    def max(self, *columns: str) -> QueryBuilder:
        return self._each("max", columns)

    def _each(self, name: str, columns: tuple[str, ...]) -> QueryBuilder:
        assert name in AGGREGATES or name in AGGREGATE_SYNONYMS
        return self.agg(*(functions.call_function(name, column) for column in columns))

    def _shown_keys(self) -> list[exp.Expr]:
        """The keys as columns of the result; a window function shows as its column."""
        shown: list[exp.Expr] = []
        for key in self.keys:
            inner = _unaliased(key)
            name = inner.name.lower() if isinstance(inner, exp.Anonymous) else ""
            alias = key.alias if isinstance(key, exp.Alias) else ""
            if name == "landmark":
                continue
            if name in ("window", "windows", "session_window", "trailing"):
                column = "session_window" if name == "session_window" else "window"
                node = _column(column)
                shown.append(exp.alias_(node, alias, quoted=True) if alias else node)
                if name == "windows" and len(inner.expressions) > 1:
                    shown.append(_column("window_id"))
            else:
                shown.append(key.copy())
        return shown


def _column(name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _unaliased(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this if isinstance(node, exp.Alias) else node
    return inner


def _flat(columns: tuple[Any, ...]) -> list[Any]:
    only = columns[0] if len(columns) == 1 else None
    return list(only) if isinstance(only, list | tuple) else list(columns)


def _names(on: Any) -> list[str] | None:
    """The names of USING, where ``on`` is names and not a condition."""
    if isinstance(on, str):
        return [on] if on.isidentifier() else None
    is_names = isinstance(on, list) and all(isinstance(name, str) for name in on)
    return on if is_names else None
