"""Queries of the text to plans: WITH, UNION ALL and FROM; ``select`` does the other clauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

from headrace.names import folded
from headrace.plan.expressions import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    Named,
    conjunction,
)
from headrace.plan.join_graph import inputs_of, join_graph, left_deep, topmost_joins, with_order
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    Order,
    Project,
    SameSession,
    SameWindow,
    Source,
    Table,
    Union,
)
from headrace.plan.output_modes import output_modes
from headrace.plan.types import BOOLEAN, STRING, TIMESTAMP, WINDOW
from headrace.sql import functions_table as table
from headrace.sql.expressions import ExpressionBinder, FunctionTypes, Origins
from headrace.sql.joins import bind_join, joined_columns, on_parts
from headrace.sql.literals import Zone
from headrace.sql.places import Places
from headrace.sql.positions import position_of
from headrace.sql.reading import refuse_unread, watched
from headrace.sql.refusals import did_you_mean, refuse
from headrace.sql.scope import Relation, Visible, relation
from headrace.sql.select import SelectBinder
from headrace.sql.timed_order import timed_order
from headrace.sql.typing import CoercionError, common_type
from headrace.sql.views import View
from headrace.sql.volatile import moving_times
from headrace.sql.where_ties import (
    Input,
    Tie,
    Ties,
    find_ties,
    has_window_of_each_input,
    is_bare,
    is_inner,
)
from headrace.sql.words import refuse_left_over

Catalog = Mapping[str, Source | Table | View]


@dataclass(frozen=True)
class Hint:
    """A hint of the text: ``JOIN_ORDER`` and the aliases in the order asked for,
    ``EARLY_AGGREGATION`` and those of the inputs to aggregate before the join, or
    ``LATE_AGGREGATION``."""

    name: str
    arguments: tuple[str, ...]


@dataclass
class QueryBinder:
    """Binds queries against a catalog; ``relations`` are the WITH queries in sight."""

    catalog: Catalog
    functions: FunctionTypes | None = None
    time_zone: Zone = None
    relations: dict[str, Node] = field(default_factory=dict)
    hints: list[Hint] = field(default_factory=list)
    origins: Origins = field(default_factory=Origins)
    #: From which part of the text joins and aggregates came.
    places: dict[Node, exp.Expr] = field(default_factory=dict)
    #: The views that the text names.
    views: dict[str, View] = field(default_factory=dict)
    #: The conditions of each SELECT's WHERE that its joins have taken, by identity.
    taken: dict[int, list[exp.Expr]] = field(default_factory=dict)

    def bind(self, tree: exp.Expr) -> Node:
        """The plan of a whole query, of which every part was read."""
        tree = watched(tree)
        plan = self.query(tree)
        for constant in moving_times(plan):
            plain = isinstance(constant, Literal)
            refuse(
                "NONDETERMINISTIC",
                self.origins.of(constant) or tree,
                name=f"the time {constant}" if plain else "a computed constant read as a time",
                advice=table.NONDETERMINISTIC["now"],
            )
        refuse_unread(tree)
        refuse_left_over(tree)
        return plan

    def marked(self, plan: Node, tree: exp.Expr) -> Places:
        """Where the parts of a plan that was bound stand in the text."""
        nodes = {node: position_of(place) for node, place in self.places.items()}
        return Places(plan, position_of(tree), nodes, self.origins)

    def query(self, node: exp.Expr) -> Node:
        """Any query: SELECT, UNION ALL, or either in parentheses."""
        if not isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
            refuse("NOT_A_QUERY", node, statement=node.key.upper())
        scope = self._with(node)
        match node:
            case exp.Select():
                return scope.select(node)
            case exp.SetOperation():
                return scope.union(node)
            case _:
                scope._refuse_modifiers(node)
                return scope.query(node.this)

    def _with(self, node: exp.Expr) -> QueryBinder:
        """The binder with the WITH queries of this node in sight."""
        clause = node.args.get("with_")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            refuse("RECURSIVE", clause)
        scope = replace(self, relations=dict(self.relations))
        names: set[str] = set()
        for cte in clause.expressions:
            name = _alias(cte)
            if name is None or folded(name) in names:
                refuse("DUPLICATE_ALIAS", cte, name=name)
            names.add(folded(name))
            scope.relations[folded(name)] = _renamed(scope.query(cte.this), cte.args["alias"])
        return scope

    def expressions(self, columns: tuple[Visible, ...], origins: Origins) -> ExpressionBinder:
        """The binder for expressions over these columns."""
        return ExpressionBinder(columns, self.functions, origins, self.time_zone)

    # Set operations

    def union(self, node: exp.SetOperation) -> Node:
        self._refuse_modifiers(node)
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            name = "UNION" if isinstance(node, exp.Union) else node.key.upper()
            advice = "write UNION ALL" if name == "UNION" else "write it as a join"
            refuse("SET_OPERATION", node, operation=name, advice=advice)
        if node.args.get("by_name"):
            refuse("UNION_BY_NAME", node)
        parts: list[Node] = []
        for side in (node.left, node.right):
            plan = self.query(side)
            if not plan.streams():
                refuse("UNION_WITHOUT_STREAM", side, tables=_tables(plan))
            parts += plan.parts if isinstance(plan, Union) else (plan,)
        union = Union(_with_equal_types(parts, node))
        if not output_modes(union):
            refuse("NO_OUTPUT_MODE", node)
        return union

    # SELECT

    def select(self, node: exp.Select) -> Node:
        self._refuse_modifiers(node)
        hints = {hint.name: hint.arguments for hint in self._read_hints(node)}
        source = node.args.get("from_")
        if source is None:
            refuse("NO_STREAM", node, tables="constants")
        from_clause = self._from(node)
        if "JOIN_ORDER" in hints:
            joined = _in_order(from_clause.node, hints["JOIN_ORDER"], node.args["hint"])
            from_clause = replace(from_clause, node=joined)
            for join in joined.walk():
                if isinstance(join, Join) and join.order is not None:
                    self.places.setdefault(join, node.args["hint"])
        taken = self.taken.get(id(node), [])
        plan = SelectBinder(self.expressions, node, from_clause, self.origins, taken).plan()
        if "LATE_AGGREGATION" in hints:
            plan = _aggregated(plan, "late", node.args["hint"])
        if "EARLY_AGGREGATION" in hints:
            names = ", ".join(hints["EARLY_AGGREGATION"]) or "none"
            plan = _aggregated(plan, names, node.args["hint"])
        self._remember_aggregate(plan, node)
        return plan

    def _remember_aggregate(self, plan: Node, node: exp.Select) -> None:
        while isinstance(plan, Project | Filter):
            plan = plan.input
        group = node.args.get("group")
        if isinstance(plan, Aggregate) and group is not None:
            hinted = plan.early not in ("", "late") and not plan.also
            self.places.setdefault(plan, node.args["hint"] if hinted else group)

    def source(self, node: exp.Select) -> Node:
        """What a SELECT reads, with its WHERE and before its columns are chosen."""
        source = self._from(node)
        taken = self.taken.get(id(node), [])
        binder = SelectBinder(self.expressions, node, source, self.origins, taken)
        binder.filter_rows()
        return binder.source.node

    def _refuse_modifiers(self, node: exp.Expr) -> None:
        """Clauses that have no exact meaning over a stream."""
        args = node.args
        for key, name, clause in _CLAUSES:
            if args.get(key):
                value = args[key]
                place = value[0] if isinstance(value, list) else value
                refuse(name, place if isinstance(place, exp.Expr) else node, clause=clause)
        if isinstance(node, exp.Select) and args.get("distinct"):
            self._refuse_distinct(node)
        if isinstance(node, exp.Select) and args.get("kind"):
            refuse("UNSUPPORTED_CLAUSE", node, clause=f"SELECT AS {args['kind']}")
        if args.get("laterals"):
            lateral = args["laterals"][0]
            view = "LATERAL VIEW" if lateral.args.get("view") else "LATERAL"
            refuse("LATERAL", lateral, what_it_is=view)
        if args.get("pivots"):
            _refuse_pivot(args["pivots"][0])

    def _refuse_distinct(self, node: exp.Select) -> None:
        columns = ", ".join(e.sql(dialect="spark") for e in node.expressions[:3])
        source = node.args.get("from_")
        source_node = self._lookup(source.this.name) if source is not None else None
        time = source_node.time if isinstance(source_node, Source) else "ts"
        refuse("DISTINCT", node.args["distinct"], columns=columns, time=time)

    def _read_hints(self, node: exp.Select) -> list[Hint]:
        """What the hints of a SELECT ask for."""
        clause = node.args.get("hint")
        hints: list[Hint] = []
        if clause is None:
            return hints
        for hint in clause.expressions:
            name = hint.name.upper() if isinstance(hint, exp.Anonymous | exp.Var) else str(hint)
            if name not in ("JOIN_ORDER", "EARLY_AGGREGATION", "LATE_AGGREGATION"):
                refuse("UNKNOWN_HINT", clause, hint_name=name)
            _refuse_contradiction(name, hints, clause)
            given = tuple(argument.name for argument in hint.expressions)
            if name == "LATE_AGGREGATION" and given:
                refuse(
                    "NOT_UNDERSTOOD",
                    clause,
                    what_it_is=f"LATE_AGGREGATION({', '.join(given)})",
                    advice="it takes no names: LATE_AGGREGATION",
                )
            if node.args.get("from_") is None:
                refuse("NO_STREAM", node, tables="constants")
            joined = [source.alias_or_name for source in _sources(node)]
            wanted, all_joined = sorted(map(folded, given)), sorted(map(folded, joined))
            texts = {"given": ", ".join(given) or "nothing", "joined": ", ".join(joined)}
            if name == "JOIN_ORDER" and wanted != all_joined:
                refuse("INVALID_JOIN_ORDER", clause, **texts)
            if name == "EARLY_AGGREGATION" and not set(wanted) <= set(all_joined):
                refuse("INVALID_EARLY_AGGREGATION", clause, **texts)
            by_name = {folded(name): name for name in joined}
            hints.append(Hint(name, tuple(by_name[folded(g)] for g in given)))
        self.hints += hints
        return hints

    # FROM

    def _from(self, node: exp.Select) -> Relation:
        """The joined relations; a join gives ``window`` where the query asks for it."""
        plain, joins = self._joined(node, None)
        mention = _mentions_window(node)
        shown = any(c.name.lower() == WINDOW_COLUMN and not c.hidden for c in plain.columns)
        windowed = [i for i, j in enumerate(joins) if isinstance(j.time, SameWindow | SameSession)]
        if mention is None or shown or not windowed:
            return plain
        if any(join.kind != JoinKind.INNER for join in joins):
            refuse(
                "NO_WINDOW_COLUMN",
                mention,
                name=WINDOW_COLUMN,
                reason="rows without a partner share no window",
                advice="use an inner join, or the time columns themselves",
            )
        relation, joins = self._joined(node, windowed[-1])
        return _in_one_window(relation, [joins[i] for i in windowed], mention)

    def _joined(self, node: exp.Expr, emitting: int | None) -> tuple[Relation, list[Join]]:
        """The relations of a FROM joined from left to right, and the joins in that order."""
        first = node.args["from_"].this if isinstance(node, exp.Select) else node
        clauses = first.args.get("joins") or []
        clauses = clauses + (node.args.get("joins") or [] if node is not first else [])
        relations = [self._relation(first)]
        for clause in clauses:
            right = self._relation(clause.this)
            aliases = {folded(alias) for relation in relations for alias in relation.aliases}
            for alias in right.aliases:
                if folded(alias) in aliases:
                    refuse("DUPLICATE_ALIAS", clause.this, name=alias)
            relations.append(right)
        ties = self._ties(node, relations, clauses)
        by_time = self._joined_by_time(node, relations, clauses, ties, emitting)
        if by_time is not None:
            return by_time
        order = list(range(len(relations)))
        if ties.found and all(map(is_bare, clauses)):
            order = ties.order(len(relations))
        result, joins, used = relations[0], [], list[Tie]()
        for index, new in enumerate(order[1:]):
            clause, own_ties = clauses[new - 1], ties.between(order[: index + 1], new)
            result = bind_join(
                result,
                relations[new],
                clause,
                self.expressions,
                self.origins,
                index == emitting,
                [tie.part for tie in own_ties],
            )
            assert isinstance(result.node, Join)
            self.places.setdefault(result.node, clause)
            joins.append(result.node)
            used += own_ties
        ties.take(used)
        self.taken[id(node)] = ties.taken
        if order != sorted(order):
            result = replace(result, columns=_in_text_order(result.columns, relations))
        return result, joins

    def _joined_by_time(
        self,
        node: exp.Expr,
        relations: list[Relation],
        clauses: list[exp.Join],
        ties: Ties,
        emitting: int | None,
    ) -> tuple[Relation, list[Join]] | None:
        """The relations of a FROM joined in an order in which each is bounded in time, where that
        is not the order of the text; None where it is."""
        plain = all(is_inner(c) and not c.args.get("using") and not c.method for c in clauses)
        if len(relations) < 3 or not plain or has_window_of_each_input(node):
            return None
        shown, parts = relations[0], list[Expr]()
        for right, clause in zip(relations[1:], clauses, strict=True):
            shown = joined_columns(shown, right, clause, self.origins)
            on = clause.args.get("on")
            if on is not None:
                parts += on_parts(on, self.expressions(shown.columns, self.origins))
        inputs = [Input.of(relation) for relation in relations]
        sure = [tie for _, some in ties.found for tie in some if not tie.can_raise]
        order = timed_order(inputs, [*parts, *(tie.part for tie in sure)])
        if order is None:
            return None
        joins: list[Join] = []
        used: list[Tie] = []

        def joined(order: Order) -> Relation:
            if isinstance(order, int):
                return relations[order]
            left, right = joined(order[0]), joined(order[1])
            clause = clauses[max(*inputs_of(order[1]), 1) - 1]
            places = frozenset(inputs_of(order))
            columns = frozenset().union(*(inputs[place].names for place in places))
            here = [part for part in parts if part.columns() <= columns]
            parts[:] = [part for part in parts if part not in here]
            own = [tie for tie in ties.within(places) if tie not in used]
            own = [tie for tie in own if not tie.can_raise] or ([] if here else own)
            used.extend(own)
            both = bind_join(
                left,
                right,
                clause,
                self.expressions,
                self.origins,
                len(joins) == emitting,
                [*here, *(tie.part for tie in own)],
                on_bound=True,
            )
            assert isinstance(both.node, Join)
            self.places.setdefault(both.node, clause)
            joins.append(both.node)
            return both

        result = joined(order)
        ties.take(used)
        self.taken[id(node)] = ties.taken
        return replace(result, columns=_in_text_order(result.columns, relations)), joins

    def _ties(self, node: exp.Expr, relations: list[Relation], clauses: list[exp.Join]) -> Ties:
        """What the WHERE of a SELECT says of the joins of its FROM."""
        if not clauses or not isinstance(node, exp.Select) or not all(map(is_inner, clauses)):
            return Ties()
        shown = relations[0]
        for right, clause in zip(relations[1:], clauses, strict=True):
            shown = joined_columns(shown, right, clause, self.origins)
        binder = replace(self.expressions(shown.columns, self.origins), no_aggregates="WHERE")
        return find_ties(
            node, relations, clauses, lambda condition: binder.condition(condition, "WHERE")
        )

    def _relation(self, node: exp.Expr) -> Relation:
        match node:
            case exp.Table():
                return self._table(node)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                # Parentheses around a join; its alias is left unread, and thus refused.
                self._refuse_modifiers(node)
                self._refuse_modifiers(node.this)
                return self._joined(node.this, None)[0]
            case exp.Subquery():
                self._refuse_modifiers(node)
                name = _alias(node)
                plan = _renamed(self.query(node.this), node.args.get("alias"))
                return relation(plan, name or "subquery")
            case exp.Lateral() | exp.Unnest():
                refuse("LATERAL", node, what_it_is="LATERAL")
            case exp.Values():
                refuse("VALUES", node, kind="VALUES")
            case _:
                refuse("VALUES", node, kind=type(node).__name__)

    def _table(self, node: exp.Table) -> Relation:
        if isinstance(node.this, exp.Anonymous):
            refuse("VALUES", node, kind=f"{node.this.name}(…)")
        if node.args.get("sample"):
            refuse("TABLESAMPLE", node.args["sample"])
        if node.args.get("pivots"):
            _refuse_pivot(node.args["pivots"][0])
        if node.args.get("laterals"):
            refuse("LATERAL", node.args["laterals"][0], what_it_is="LATERAL VIEW")
        name = ".".join(part.name for part in node.parts)
        node_of_name = self._lookup(name)
        if node_of_name is None:
            names = [*self.catalog, *self.relations]
            shown = f"known are {', '.join(names)}" if names else "none is registered"
            refuse("UNKNOWN_RELATION", node, name=name, advice=did_you_mean(name, names, shown))
        return relation(_renamed(node_of_name, node.args.get("alias")), _alias(node) or node.name)

    def _lookup(self, name: str) -> Node | None:
        wanted = folded(name)
        if wanted in self.relations:
            return self.relations[wanted]
        registered = next((n for key, n in self.catalog.items() if folded(key) == wanted), None)
        if isinstance(registered, View):
            self.views.setdefault(wanted, registered)
            return registered.plan
        return registered


_CLAUSES: tuple[tuple[str, str, str], ...] = (
    ("order", "ORDER_BY", "ORDER BY"),
    ("sort", "ORDER_BY", "SORT BY"),
    ("cluster", "ORDER_BY", "CLUSTER BY"),
    ("distribute", "UNSUPPORTED_CLAUSE", "DISTRIBUTE BY"),
    ("limit", "LIMIT", "LIMIT"),
    ("offset", "LIMIT", "OFFSET"),
    ("qualify", "QUALIFY", "QUALIFY"),
    ("windows", "UNSUPPORTED_CLAUSE", "WINDOW"),
    ("sample", "TABLESAMPLE", "TABLESAMPLE"),
    ("into", "UNSUPPORTED_CLAUSE", "INTO"),
    ("locks", "UNSUPPORTED_CLAUSE", "FOR UPDATE"),
    ("match", "UNSUPPORTED_CLAUSE", "MATCH_RECOGNIZE"),
    ("connect", "UNSUPPORTED_CLAUSE", "CONNECT BY"),
)


def _refuse_pivot(pivot: exp.Expr) -> NoReturn:
    refuse("PIVOT", pivot, clause="UNPIVOT" if pivot.args.get("unpivot") else "PIVOT")


def _alias(node: exp.Expr) -> str | None:
    """The alias of a relation. ``t@v1`` is read as an alias too, and is none."""
    clause = node.args.get("alias")
    name = clause.this if clause is not None else None
    if name is not None and not isinstance(name, exp.Identifier):
        refuse(
            "NOT_UNDERSTOOD",
            node,
            what_it_is=f"{name.sql(dialect='spark')} as an alias",
            advice="write AS and a name",
        )
    return None if name is None else str(name.name)


def _refuse_contradiction(name: str, others: list[Hint], clause: exp.Expr) -> None:
    """A hint twice, or early and late aggregation at once."""
    about_aggregates = ("EARLY_AGGREGATION", "LATE_AGGREGATION")
    for other in others:
        if other.name == name or {other.name, name} == set(about_aggregates):
            refuse(
                "NOT_UNDERSTOOD",
                clause,
                what_it_is=f"{name} beside {other.name}",
                advice="write one of them",
            )


def _sources(node: exp.Select) -> list[exp.Expr]:
    return [node.args["from_"].this, *(join.this for join in node.args.get("joins") or [])]


def _mentions_window(node: exp.Select) -> exp.Expr | None:
    """A mention of the column ``window`` that means the window of a join.

    Where the query groups by a window function, ``window`` after the GROUP BY is that one.
    """
    args = node.args
    makes_window = [*node.expressions, args.get("group")]
    before, after = [args.get("where"), args.get("group")], [*node.expressions, args.get("having")]
    grouped = any(
        call.name.lower() in table.WINDOW_FUNCTIONS
        for clause in makes_window
        if isinstance(clause, exp.Expr)
        for call in clause.find_all(exp.Anonymous)
    )
    for clause in before if grouped else before + after:
        for column in clause.find_all(exp.Column) if isinstance(clause, exp.Expr) else ():
            if column.parts[0].name.lower() == WINDOW_COLUMN:
                return column
    return None


def _in_one_window(joined: Relation, windowed: list[Join], mention: exp.Expr) -> Relation:
    """Where several joins share a window, the one given out must hold the rows of all of them.

    Neighbouring hopping windows overlap, so a and b may share another window than a and c.
    """
    times = [t for j in windowed for t in j.times if isinstance(t, SameWindow | SameSession)]
    specs = {replace(time, left=_NO_COLUMN, right=_NO_COLUMN) for time in times}
    if len(specs) > 1:
        refuse(
            "NO_WINDOW_COLUMN",
            mention,
            name=WINDOW_COLUMN,
            reason="the joins have different windows",
            advice="join with the same window everywhere, or select the time columns",
        )
    last = windowed[-1].time
    if not isinstance(last, SameWindow) or last.window.overlap == 1:
        return joined
    window = Column(WINDOW_COLUMN, WINDOW)
    start = Call("field", (window, Literal("start", STRING)), TIMESTAMP)
    end = Call("field", (window, Literal("end", STRING)), TIMESTAMP)
    others = {column for time in times for column in (time.left, time.right)}
    tests: list[Expr] = []
    for time in sorted(others - {last.left, last.right}, key=lambda c: c.name):
        tests.append(Call(">=", (time, start), BOOLEAN))
        tests.append(Call("<", (time, end), BOOLEAN))
    predicate = conjunction(tests)
    return joined if predicate is None else replace(joined, node=Filter(joined.node, predicate))


def _in_text_order(columns: tuple[Visible, ...], relations: list[Relation]) -> tuple[Visible, ...]:
    """The columns of a join as the text names its inputs, and after them what the join makes."""
    aliases = [alias for relation in relations for alias in relation.aliases]
    place = {alias: number for number, alias in enumerate(aliases)}
    return tuple(sorted(columns, key=lambda c: place.get(c.alias or "", len(place))))


_NO_COLUMN = Column("", TIMESTAMP)


def _renamed(plan: Node, alias: exp.Expr | None) -> Node:
    """The plan with the column names of ``AS t(x, y)``."""
    names = [column.name for column in (alias.args.get("columns") or [])] if alias else []
    if not names:
        return plan
    if len(names) != len(plan.schema):
        refuse(
            "COLUMN_COUNT",
            alias,
            alias=alias.name if alias else "",
            given=len(names),
            columns=len(plan.schema),
        )
    columns = zip(names, plan.schema, strict=True)
    return Project(plan, tuple(Named(name, Column(f.name, f.type)) for name, f in columns))


def _with_equal_types(parts: list[Node], node: exp.Expr) -> tuple[Node, ...]:
    """The inputs of a UNION ALL, cast where their types differ but go together."""
    first = parts[0].schema
    for part in parts[1:]:
        if len(part.schema) != len(first):
            refuse(
                "UNION_MISMATCH",
                node,
                left=f"{len(first)} columns",
                right=f"{len(part.schema)} columns",
            )
    types = [f.type for f in first]
    for part in parts[1:]:
        for index, ours in enumerate(part.schema):
            try:
                types[index] = common_type(types[index], ours.type)
            except CoercionError:
                name = first.fields[index].name
                refuse(
                    "UNION_MISMATCH",
                    node,
                    left=f"{name} ({types[index]})",
                    right=f"{ours.name} ({ours.type})",
                )
    result: list[Node] = []
    for part in parts:
        if [f.type for f in part.schema] == types:
            result.append(part)
            continue
        columns = []
        for ours, kind in zip(part.schema, types, strict=True):
            column: Expr = Column(ours.name, ours.type)
            columns.append(Named(ours.name, column if ours.type == kind else Cast(column, kind)))
        result.append(Project(part, tuple(columns)))
    return tuple(result)


def require_stream(plan: Node, node: exp.Expr) -> None:
    """Refuse a query over tables alone."""
    if not plan.streams():
        refuse("NO_STREAM", node, tables=_tables(plan))


def _tables(plan: Node) -> str:
    return ", ".join(sorted({n.shown for n in plan.walk() if isinstance(n, Table)})) or "nothing"


def _aggregated(plan: Node, early: str, clause: exp.Expr) -> Node:
    """The plan of a SELECT whose aggregate is computed as a hint asks for."""
    match plan:
        case Aggregate():
            return replace(plan, early=early)
        case Project() | Filter():
            return plan.with_inputs((_aggregated(plan.input, early, clause),))
        case _:
            refuse("NOTHING_AGGREGATED", clause)


def _in_order(joined: Node, names: tuple[str, ...], clause: exp.Expr) -> Node:
    """The relations of a FROM in the order that a hint asks for.

    A table is joined with the stream that it belongs to, wherever the hint names it.
    """
    for join in topmost_joins(joined):
        graph = join_graph(join)
        if not set(graph.names) <= set(names):
            break
        order = left_deep([graph.names.index(name) for name in names if name in graph.names])
        return with_order(joined, join, order)
    joins = (n for n in joined.walk() if isinstance(n, Join))
    if not any(join.left.streams() and join.right.streams() for join in joins):
        return joined
    refuse("FIXED_JOIN_ORDER", clause, names=", ".join(names))
