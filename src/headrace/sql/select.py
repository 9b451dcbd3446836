"""One SELECT over its FROM: WHERE, GROUP BY, HAVING and the columns, in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.names import folded, same_name
from headrace.plan.expressions import (
    AggregateCall,
    Column,
    Expr,
    Named,
    conjunction,
)
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Filter,
    Join,
    Node,
    Project,
)
from headrace.sql import functions_table as table
from headrace.sql.aggregates import bind_grouping, without_window
from headrace.sql.expressions import ExpressionBinder, Origins
from headrace.sql.joins import MakeBinder
from headrace.sql.names import spark_name
from headrace.sql.refusals import did_you_mean, refuse
from headrace.sql.scope import Relation, Visible, field_of, resolve
from headrace.sql.where_ties import where_conjuncts
from headrace.sql.windows import WindowCall


@dataclass
class SelectBinder:
    """The clauses of one SELECT over its FROM."""

    expressions: MakeBinder
    node: exp.Select
    source: Relation
    origins: Origins
    #: The conditions of the WHERE that joins have taken.
    taken: Sequence[exp.Expr] = ()

    def binder(self, **settings: object) -> ExpressionBinder:
        if isinstance(_below_filters(self.source.node), Join):
            settings.setdefault("no_window", _NO_WINDOW_JOIN)
        plain = self.expressions(self.source.columns, self.origins)
        return replace(plain, **settings)  # type: ignore[arg-type]

    def filter_rows(self) -> None:
        where = self.node.args.get("where")
        if where is not None:
            predicate = self._rest_of(where.this)
            if predicate is None:
                return
            self._no_window_calls(predicate)
            self.source = replace(self.source, node=Filter(self.source.node, predicate))

    def _rest_of(self, where: exp.Expr) -> Expr | None:
        """The WHERE without what joins have taken of it."""
        binder = self.binder(no_aggregates="WHERE")
        if not self.taken:
            return binder.condition(where, "WHERE")
        taken = {id(node) for node in self.taken}
        rest = [node for node in where_conjuncts(where) if id(node) not in taken]
        return conjunction([binder.condition(node, "WHERE") for node in rest])

    def plan(self) -> Node:
        self.filter_rows()
        group = self.node.args.get("group")
        items = self._expanded()
        aggregates = [a for item, _ in items if item is not None for a in _aggregates(item)]
        having = self.node.args.get("having")
        if group is None and having is not None and not aggregates:
            refuse("HAVING_WITHOUT_GROUP_BY", having)
        if group is not None:
            return self._grouped(group, items)
        if aggregates:
            without_window(self.source, aggregates[0])
        return self._projected(items)

    def _expanded(self) -> list[tuple[exp.Expr | None, Visible | None]]:
        """The SELECT list with ``*`` and ``a.*`` written out."""
        items: list[tuple[exp.Expr | None, Visible | None]] = []
        for item in self.node.expressions:
            star = isinstance(item, exp.Star)
            qualified = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            if not star and not qualified:
                items.append((item, None))
                continue
            alias = folded(item.table) if qualified else None
            shown = [
                c
                for c in self.source.columns
                if (alias is None and not c.hidden) or (alias and folded(c.alias or "") == alias)
            ]
            if alias is not None and not shown:
                items += self._struct_star(item)
                continue
            excluded = self._excluded(item.this if qualified else item, shown)
            items += [(item, c) for c in shown if folded(c.name) not in excluded]
        return items

    @staticmethod
    def _excluded(star: exp.Star, shown: list[Visible]) -> set[str]:
        """The names of ``* EXCEPT (…)``, each of which must be one of the columns."""
        excluded: set[str] = set()
        for column in star.args.get("except_") or []:
            names = [c.name for c in shown]
            if folded(column.name) not in {folded(name) for name in names}:
                advice = did_you_mean(column.name, names, f"the columns are {', '.join(names)}")
                refuse("UNKNOWN_COLUMN", column, name=column.name, advice=advice)
            excluded.add(folded(column.name))
        return excluded

    def _struct_star(self, item: exp.Expr) -> list[tuple[exp.Expr | None, Visible | None]]:
        """``window.*``: the fields of a struct."""
        assert isinstance(item, exp.Column)
        struct = resolve(self.source.columns, [item.table], item)
        if struct is None or not struct.type.is_struct:
            relations = list(self.source.aliases)
            advice = did_you_mean(
                item.table, relations, f"the relations are {', '.join(relations)}"
            )
            refuse("UNKNOWN_RELATION", item, name=item.table, advice=advice)
        fields = struct.type.fields()
        return [(item, Visible(f.name, None, field_of(struct, f.name, item))) for f in fields]

    def _items(
        self, items: list[tuple[exp.Expr | None, Visible | None]], binder: ExpressionBinder
    ) -> list[Named]:
        """The SELECT list, bound and named; later columns may use the names of earlier ones."""
        result: list[Named] = []
        places: dict[str, exp.Expr | None] = {}
        for node, visible in items:
            if visible is not None:
                assert node is not None
                expr = self.origins.remember(visible.expr, node)
                named = Named(visible.name, expr)
            else:
                assert node is not None
                inner = node.this if isinstance(node, exp.Alias) else node
                expr = binder.bind(inner)
                name = node.alias if isinstance(node, exp.Alias) else self._name(inner, expr)
                named = Named(name, expr)
                if isinstance(node, exp.Alias):
                    binder.aliases.setdefault(folded(name), expr)
            if folded(named.name) in places:
                refuse("DUPLICATE_COLUMN", node, name=named.name)
            places[folded(named.name)] = node
            result.append(named)
        return result

    def _name(self, node: exp.Expr, expr: Expr) -> str:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast | exp.TryCast) and isinstance(node.this, exp.Column):
            # Spark looks through a cast for the name.
            node = node.this
        if isinstance(node, exp.Column | exp.Dot | exp.Identifier):
            return node.name
        shown = {c.expr.name: c.name for c in self.source.columns if isinstance(c.expr, Column)}
        name = spark_name(expr, shown)
        if isinstance(expr, AggregateCall) and isinstance(node, exp.Anonymous):
            # The plan holds one spelling of an aggregate; the user's own is the name.
            written = node.name.lower()
            spelling = expr.function if written == "array_agg" else written
            name = name.replace(f"{expr.function}(", f"{spelling}(", 1)
        return name

    def _projected(self, items: list[tuple[exp.Expr | None, Visible | None]]) -> Node:
        columns = self._items(items, self.binder())
        for column in columns:
            self._no_window_calls(column.expr)
        return Project(self.source.node, tuple(columns))

    def _no_window_calls(self, expr: Expr) -> None:
        for part in expr.walk():
            if isinstance(part, WindowCall):
                column = "session_window" if part.function == "session_window" else WINDOW_COLUMN
                refuse(
                    "WINDOW_OUTSIDE_GROUP_BY",
                    self.origins.of(part),
                    name=part.function,
                    column=column,
                )

    # GROUP BY

    def _grouped(
        self, group: exp.Group, items: list[tuple[exp.Expr | None, Visible | None]]
    ) -> Node:
        for key, clause in (
            ("grouping_sets", "GROUPING SETS"),
            ("cube", "CUBE"),
            ("rollup", "ROLLUP"),
            ("totals", "WITH TOTALS"),
        ):
            if group.args.get(key):
                refuse("GROUPING_SETS", group, clause=clause)
        if group.args.get("all") is False:
            refuse("UNSUPPORTED_CLAUSE", group, clause="GROUP BY DISTINCT")
        binder = self.binder(no_aggregates="GROUP BY")
        bound = [(node, binder.bind(node)) for node in self._group_nodes(group, items)]
        grouping = bind_grouping(self.source, bound, binder, group)
        select = self.binder(overlay=grouping.overlay, no_window=grouping.no_window)
        columns = self._items(items, select)
        output = tuple(Named(c.name, grouping.output(c.expr)) for c in columns)
        having = self.node.args.get("having")
        predicate = None
        if having is not None:
            condition = replace(select, no_aggregates=None)
            predicate = grouping.output(condition.condition(having.this, "HAVING"))
        node: Node = grouping.node()
        if predicate is not None:
            node = Filter(node, predicate)
        return Project(node, output)

    def _group_nodes(
        self, group: exp.Group, items: list[tuple[exp.Expr | None, Visible | None]]
    ) -> list[exp.Expr]:
        """The items of a GROUP BY, with numbers and aliases of the SELECT written out."""
        selected = [node for node, visible in items if node is not None and visible is None]
        if group.args.get("all"):
            return [_unaliased(node) for node in selected if not _aggregates(node)]
        nodes: list[exp.Expr] = []
        for item in group.expressions:
            if isinstance(item, exp.Cube | exp.Rollup | exp.GroupingSets):
                refuse("GROUPING_SETS", item, clause=item.key.upper().replace("GS", "G S"))
            nodes.append(self._group_node(item, selected))
        return nodes

    def _group_node(self, item: exp.Expr, selected: list[exp.Expr]) -> exp.Expr:
        if isinstance(item, exp.Literal) and not item.is_string:
            position = int(item.name) if item.name.isdigit() else 0
            if not 1 <= position <= len(selected):
                refuse("GROUP_BY_POSITION", item, position=item.name, count=len(selected))
            return _unaliased(selected[position - 1])
        if isinstance(item, exp.Column) and not item.table:
            resolved = resolve(self.source.columns, [item.name], item)
            named = [
                s for s in selected if isinstance(s, exp.Alias) and same_name(s.alias, item.name)
            ]
            if resolved is None and named:
                return _unaliased(named[0])
        return item


_NO_WINDOW_JOIN = (
    "the join has no window condition",
    "add one: window(a.ts, '10 minutes') = window(b.ts, '10 minutes')",
)


def _below_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.input
    return node


def _unaliased(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _aggregates(node: exp.Expr) -> list[exp.Expr]:
    """Aggregate calls in an expression, those with OVER left out."""
    calls: list[exp.Expr] = []
    for call in node.walk(prune=lambda part: isinstance(part, exp.Query)):
        if not isinstance(call, exp.Anonymous):
            continue
        name = call.name.lower()
        is_aggregate = name in table.AGGREGATES or name in table.AGGREGATE_SYNONYMS
        if is_aggregate and not isinstance(call.parent, exp.Window):
            calls.append(call)
    return calls
