"""Joins: the ON condition sorted into equal keys, a condition on time, and the rest."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headrace.errors import DurationError
from headrace.names import folded
from headrace.plan.durations import DAY, LONGEST, format_duration
from headrace.plan.expressions import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    LiteralValue,
    conjunction,
    conjuncts,
    window_time,
)
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Aggregate,
    IntervalBound,
    Join,
    JoinKind,
    JoinTime,
    SameSession,
    SameWindow,
)
from headrace.plan.times import (
    event_times,
    goes_by_event_times,
    times_to_join_by,
    untimed_inputs,
)
from headrace.plan.types import BOOLEAN, TIMESTAMP, WINDOW, DataType
from headrace.plan.windows import Hopping, InputWindowKind, Landmark, Session
from headrace.sql.aggregates import time_column
from headrace.sql.expressions import ExpressionBinder, Origins
from headrace.sql.positions import position_of
from headrace.sql.refusals import did_you_mean, refuse
from headrace.sql.scope import Relation, Visible, without_prefix
from headrace.sql.time_bounds import Bound, time_bound
from headrace.sql.typing import CoercionError, comparison_type
from headrace.sql.windows import WindowCall, describe

MakeBinder = Callable[[tuple[Visible, ...], Origins], ExpressionBinder]


@dataclass
class Side:
    """One input of a join while its condition is read."""

    relation: Relation
    names: frozenset[str]
    times: frozenset[str]

    @classmethod
    def of(cls, relation: Relation, in_tree: bool) -> Side:
        """``in_tree`` says that the join becomes a part of a tree of joins that it goes over."""
        prefix = "" if relation.alias is None else f"{relation.alias}."
        names = frozenset(prefix + name for name in relation.node.schema.names)
        own = times_to_join_by(relation.node) if in_tree else event_times(relation.node)
        times = frozenset(prefix + name for name in own)
        return cls(relation, names, times)

    @property
    def streaming(self) -> bool:
        return bool(self.relation.node.streams())

    def holds(self, expr: Expr) -> bool:
        """Whether the expression reads columns of this side and of no other."""
        columns = expr.columns()
        return bool(columns) and columns <= self.names

    def column_for(self, time: Expr) -> Column:
        """The time as a column of this side; ``window_time`` is added below the join."""
        if isinstance(time, Column):
            return time
        prefix = "" if self.relation.alias is None else f"{self.relation.alias}."
        self.relation, column = time_column(self.relation, without_prefix(time, prefix))
        return Column(prefix + column.name, TIMESTAMP)


@dataclass
class OnClause:
    """What the ON condition says, part by part."""

    keys: list[tuple[Expr, Expr]]
    windows: list[tuple[WindowCall, WindowCall, Expr]]
    bounds: list[tuple[Bound, Expr]]
    residual: list[Expr]
    #: Pairs that ``<=>`` compares.
    with_nulls: list[tuple[Expr, Expr]] = field(default_factory=list)


def bind_join(
    left: Relation,
    right: Relation,
    join: exp.Join,
    expressions: MakeBinder,
    origins: Origins,
    emits_window: bool,
    ties: Sequence[Expr] = (),
    on_bound: bool = False,
) -> Relation:
    """The join of two relations, refused where it could never forget or never be final.

    ``ties`` are further parts of its condition, bound already; ``on_bound`` says that they are all
    of it.
    """
    kind = _kind(join, bool(ties))

    def bound(in_tree: bool) -> tuple[Join, tuple[Visible, ...], tuple[Side, Side]]:
        sides = Side.of(left, in_tree), Side.of(right, in_tree)
        condition, columns = _condition(join, sides, kind, expressions, origins, on_bound)
        for part in ties:
            _sort_in(part, condition, sides, origins)
        time, also = _time(join, sides, condition, origins, in_tree)
        _keys_with_nulls(condition, time)
        _check(join, sides, kind, condition, time)
        node = Join(
            sides[0].relation.node,
            sides[1].relation.node,
            kind,
            left.alias,
            right.alias,
            tuple(condition.keys),
            time,
            conjunction(condition.residual),
            emits_window and isinstance(time, SameWindow | SameSession),
            also,
        )
        return node, columns, sides

    node, columns, sides = bound(in_tree=kind is JoinKind.INNER and not emits_window)
    if not goes_by_event_times(node):
        # It is an operator above the tree after all: a session join, or parted from it by a table.
        node, columns, sides = bound(in_tree=False)
    untimed = untimed_inputs(node)
    if untimed:
        refuse("JOIN_WITHOUT_EVENT_TIME", join, input=untimed[0])
    if node.emits_window:
        columns += (Visible(WINDOW_COLUMN, None, Column(WINDOW_COLUMN, WINDOW)),)
    nullable = left.qualified().nullable | right.qualified().nullable
    if kind.keeps_right:
        nullable |= sides[0].names
    if kind.keeps_left:
        nullable |= sides[1].names
    return Relation(node, columns, None, nullable)


def joined_columns(left: Relation, right: Relation, join: exp.Join, origins: Origins) -> Relation:
    """The columns that an inner join shows; as a plan it has only that of its left side."""
    columns = left.qualified().columns + right.qualified().columns
    names = _names_in_common(join, left, right)
    if names:
        sides = Side(left, frozenset(), frozenset()), Side(right, frozenset(), frozenset())
        unused = OnClause([], [], [], [])
        columns = _using(names, join, sides, JoinKind.INNER, unused, origins)
    return Relation(left.node, columns, None)


def _kind(join: exp.Join, tied: bool) -> JoinKind:
    method = (join.args.get("method") or "").upper()
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if method not in ("", "NATURAL") or kind in ("STRAIGHT", "ASOF"):
        refuse("UNSUPPORTED_CLAUSE", join, clause=f"{method or kind} JOIN")
    if kind == "CROSS":
        if tied:
            return JoinKind.INNER
        refuse("CROSS_JOIN", join)
    if kind in ("SEMI", "ANTI"):
        advice = {
            "SEMI": "join, and select columns of one side",
            "ANTI": "use LEFT JOIN and WHERE right.key IS NULL",
        }
        refuse("SEMI_JOIN", join, kind=f"a {kind}", advice=advice[kind])
    if kind not in (("", "OUTER") if side else ("", "INNER")):
        refuse("UNSUPPORTED_CLAUSE", join, clause=f"{side} {kind} JOIN".strip())
    return JoinKind(side.lower()) if side else JoinKind.INNER


def _condition(
    join: exp.Join,
    sides: tuple[Side, Side],
    kind: JoinKind,
    expressions: MakeBinder,
    origins: Origins,
    on_bound: bool,
) -> tuple[OnClause, tuple[Visible, ...]]:
    left, right = sides[0].relation.qualified(), sides[1].relation.qualified()
    columns = left.columns + right.columns
    condition = OnClause([], [], [], [])
    names = _names_in_common(join, sides[0].relation, sides[1].relation)
    if names:
        columns = _using(names, join, sides, kind, condition, origins)
    on = join.args.get("on")
    if on is not None and not on_bound:
        for part in on_parts(on, expressions(columns, origins)):
            _sort_in(part, condition, sides, origins)
    return condition, columns


def on_parts(on: exp.Expr, binder: ExpressionBinder) -> list[Expr]:
    """The conditions of an ON that must all hold."""
    bound = replace(binder, no_aggregates="ON").condition(on, "ON")
    return [part for part in conjuncts(bound) if part != _TRUE]


_TRUE = Literal(True, BOOLEAN)


def _names_in_common(join: exp.Join, left: Relation, right: Relation) -> list[exp.Identifier]:
    """The names of USING, or for NATURAL those that both sides have."""
    if (join.args.get("method") or "").upper() != "NATURAL":
        return join.args.get("using") or []
    shown = {folded(c.name) for c in right.columns if not c.hidden}
    common = [c.name for c in left.columns if not c.hidden and folded(c.name) in shown]
    if not common:
        refuse("NATURAL_JOIN", join)
    return [exp.to_identifier(name, quoted=True) for name in common]


def _using(
    identifiers: list[exp.Identifier],
    join: exp.Join,
    sides: tuple[Side, Side],
    kind: JoinKind,
    condition: OnClause,
    origins: Origins,
) -> tuple[Visible, ...]:
    """USING(k): what ``a.k = b.k`` says, and one column ``k`` where there were two."""
    left, right = sides[0].relation.qualified(), sides[1].relation.qualified()
    merged: list[Visible] = []
    names: set[str] = set()
    for identifier in identifiers:
        place = identifier if position_of(identifier) else join
        name = folded(identifier.name)
        pair = []
        for side in (left, right):
            of_name = [c for c in side.columns if folded(c.name) == name and not c.hidden]
            if len(of_name) != 1:
                side_names = [c.name for c in side.columns if not c.hidden]
                which = "left" if side is left else "right"
                shown = f"the {which} side has {', '.join(side_names)}"
                advice = did_you_mean(identifier.name, side_names, shown)
                refuse("UNKNOWN_COLUMN", place, name=identifier.name, advice=advice)
            pair.append(of_name[0])
        try:
            key = _key(pair[0].expr, pair[1].expr)
        except CoercionError as error:
            what = f"USING ({identifier.name}): {error}"
            refuse("TYPE_MISMATCH", place, what_it_is=what, advice="write ON with a CAST")
        _sort_in(Call("=", key, BOOLEAN), condition, sides, origins)
        merged_column = pair[1] if kind == JoinKind.RIGHT else pair[0]
        expr = merged_column.expr
        if kind == JoinKind.FULL:
            common = comparison_type(pair[0].expr.type, pair[1].expr.type)
            expr = Call("coalesce", (pair[0].expr, pair[1].expr), common)
        merged.append(Visible(merged_column.name, None, expr))
        names.add(name)
    rest = tuple(
        replace(c, hidden=True) if folded(c.name) in names else c
        for c in left.columns + right.columns
    )
    return (*merged, *rest)


def _sort_in(part: Expr, condition: OnClause, sides: tuple[Side, Side], origins: Origins) -> None:
    left, right = sides
    if any(isinstance(inner, WindowCall) for inner in part.walk()):
        condition.windows.append(_window_pair(part, sides, origins))
        return
    bound = time_bound(part, left.times, right.times)
    if bound is not None:
        condition.bounds.append((bound, part))
        return
    if isinstance(part, Call) and part.function == "=":
        one, other = part.arguments
        if right.holds(one) and left.holds(other):
            one, other = other, one
        if left.holds(one) and right.holds(other):
            condition.keys.append(_key(one, other))
            _equal_windows(one, other, sides, condition)
            return
    if isinstance(part, Call) and part.function == "<=>":
        one, other = part.arguments
        if right.holds(one) and left.holds(other):
            one, other = other, one
        if left.holds(one) and right.holds(other):
            condition.with_nulls.append(_key(one, other))
            return
    condition.residual.append(part)


def _keys_with_nulls(condition: OnClause, time: JoinTime | None) -> None:
    """``a <=> b`` as keys: equal where NULL is some value, and NULL of both or of neither.

    What a session is goes by the keys, so a session join has it as a further condition.
    """
    for left, right in condition.with_nulls:
        some = _SOME_VALUE.get(left.type.name)
        if left.type.is_decimal:
            some = decimal.Decimal(0)
        if some is None or isinstance(time, SameSession):
            condition.residual.append(Call("<=>", (left, right), BOOLEAN))
            continue
        value = Literal(some, left.type)
        condition.keys += [
            (
                Call("coalesce", (left, value), left.type),
                Call("coalesce", (right, value), left.type),
            ),
            (Call("isnull", (left,), BOOLEAN), Call("isnull", (right,), BOOLEAN)),
        ]


#: A value of each type that takes the place of NULL in a key.
_SOME_VALUE: dict[str, LiteralValue] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), 0),
    **dict.fromkeys(("float", "double"), 0.0),
    "boolean": False,
    "string": "",
    "date": datetime.date(1970, 1, 1),
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
}


def _key(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Both sides of an equality at one type: equal keys must also hash alike."""
    common = comparison_type(left.type, right.type)
    return _as(left, common), _as(right, common)


def _as(expr: Expr, kind: DataType) -> Expr:
    return expr if expr.type == kind else Cast(expr, kind)


def _equal_windows(left: Expr, right: Expr, sides: tuple[Side, Side], condition: OnClause) -> None:
    """``a.window = b.window`` is also a bound on time: the last instants of both agree."""
    for expr, side in zip((left, right), sides, strict=True):
        is_time = isinstance(expr, Column) and expr.type == WINDOW and expr.name in side.times
        if not is_time:
            return
    bound = Bound(window_time(left), window_time(right), 0, 0, exact=True)
    condition.bounds.append((bound, Call("=", (left, right), BOOLEAN)))


def _window_pair(
    part: Expr, sides: tuple[Side, Side], origins: Origins
) -> tuple[WindowCall, WindowCall, Expr]:
    node = origins.of(part)
    first = next(inner for inner in part.walk() if isinstance(inner, WindowCall))
    example = "window(a.ts, '10 minutes') = window(b.ts, '10 minutes')"
    if first.function == "session_window":
        example = "session_window(a.ts, '5 minutes') = session_window(b.ts, '5 minutes')"
    if not isinstance(part, Call) or part.function != "=":
        refuse("JOIN_SIDES", node, what_it_is=f"{first.function}(…)", example=example)
    one, other = part.arguments
    if not isinstance(one, WindowCall) or not isinstance(other, WindowCall):
        refuse("JOIN_SIDES", node, what_it_is=f"{first.function}(…)", example=example)
    if sides[1].holds(one) and sides[0].holds(other):
        one, other = other, one
    if not (sides[0].holds(one) and sides[1].holds(other)):
        refuse("JOIN_SIDES", node, what_it_is=f"{first.function}(…)", example=example)
    if one.windows != other.windows or one.function != other.function:
        refuse("WINDOW_MISMATCH", node, left=describe(one), right=describe(other))
    if not isinstance(one.windows[0], Hopping | Session) or len(one.windows) > 1:
        refuse("JOIN_SIDES", node, what_it_is=f"{one.function}(…)", example=example)
    return one, other, part


def _time(
    join: exp.Join,
    sides: tuple[Side, Side],
    condition: OnClause,
    origins: Origins,
    in_tree: bool,
) -> tuple[JoinTime | None, tuple[JoinTime, ...]]:
    """The condition on time, and further ones between other times of a tree of joins; what else
    is compared of times stays as predicates.

    In a tree of joins each of them bounds rows, whichever joins it is written at, and so which of
    them meet in one join says nothing.
    """
    if condition.windows:
        return _shared_windows(join, sides, condition, origins, in_tree)
    if not condition.bounds or not (sides[0].streaming and sides[1].streaming):
        condition.residual += [predicate for _, predicate in condition.bounds]
        return None, ()
    pairs: dict[_Pair, list[Bound]] = {}
    for bound, _ in condition.bounds:
        pairs.setdefault((bound.left, bound.right), []).append(bound)

    def sides_bounded(bounds: list[Bound]) -> int:
        below = any(b.lower is not None for b in bounds)
        return below + any(b.upper is not None for b in bounds)

    chosen = max(pairs, key=lambda pair: sides_bounded(pairs[pair]))
    time = _within(join, sides, chosen, pairs[chosen])
    return time, _also(join, sides, condition, chosen, in_tree)


_Pair = tuple[Expr, Expr]


def _shared_windows(
    join: exp.Join,
    sides: tuple[Side, Side],
    condition: OnClause,
    origins: Origins,
    in_tree: bool,
) -> tuple[JoinTime, tuple[JoinTime, ...]]:
    times: dict[_Pair, JoinTime] = {}
    for one, other, part in condition.windows:
        for call, side in ((one, sides[0]), (other, sides[1])):
            _check_time(call.time, side, origins.of(call) or origins.of(part))
        several = (one.time, other.time) in times or not in_tree
        if times and (several or isinstance(one.windows[0], Session)):
            refuse("SEVERAL_WINDOWS", origins.of(part), count=len(condition.windows))
        left, right = sides[0].column_for(one.time), sides[1].column_for(other.time)
        window = one.windows[0]
        if isinstance(window, Session):
            times[one.time, other.time] = SameSession(left, right, window.gap)
            in_tree = False
            continue
        assert isinstance(window, Hopping)
        times[one.time, other.time] = SameWindow(left, right, window)
    time, *others = times.values()
    also = _also(join, sides, condition, None, in_tree, frozenset(times))
    return time, (*others, *also)


def _also(
    join: exp.Join,
    sides: tuple[Side, Side],
    condition: OnClause,
    chosen: _Pair | None,
    in_tree: bool,
    windowed: frozenset[_Pair] = frozenset(),
) -> tuple[JoinTime, ...]:
    """The bounds on other pairs of times than the one chosen, and as predicates those that are not
    or not wholly said by that."""
    pairs: dict[_Pair, list[Bound]] = {}
    for bound, predicate in condition.bounds:
        pair = bound.left, bound.right
        plain = all(isinstance(time, Column) for time in pair)
        short = all(r is None or abs(r) <= LONGEST for r in (bound.lower, bound.upper))
        if pair != chosen and pair not in windowed and in_tree and plain and short:
            pairs.setdefault(pair, []).append(bound)
        elif pair == chosen and bound.exact:
            continue
        if not bound.exact or pair not in pairs:
            condition.residual.append(predicate)
    return tuple(_within(join, sides, pair, bounds) for pair, bounds in pairs.items())


def _within(
    join: exp.Join, sides: tuple[Side, Side], pair: _Pair, bounds: list[Bound]
) -> IntervalBound:
    """The tightest bounds between a pair of times."""
    lower = max((b.lower for b in bounds if b.lower is not None), default=None)
    upper = min((b.upper for b in bounds if b.upper is not None), default=None)
    place = join.args.get("on") or join
    if lower is not None and upper is not None and lower > upper:
        texts = {"lower": format_duration(lower), "upper": format_duration(upper)}
        refuse("EMPTY_INTERVAL", place, **texts)
    for reach in (lower, upper):
        if reach is not None and abs(reach) > LONGEST:
            raise DurationError(
                f"the join's time bound of {format_duration(reach)} is too long",
                hint=f"use at most {LONGEST // DAY} days, or join on the keys alone",
                position=position_of(place),
            )
    left, right = sides[0].column_for(pair[0]), sides[1].column_for(pair[1])
    return IntervalBound(left, right, lower, upper)


def _check_time(time: Expr, side: Side, node: exp.Expr | None) -> None:
    column = time if isinstance(time, Column) else time.children[0]
    assert isinstance(column, Column)
    if column.name in side.relation.qualified().nullable:
        refuse("NULLABLE_TIME", node, column=column.name)
    if column.name in side.times:
        return
    if not side.streaming:
        refuse(
            "NOT_EVENT_TIME",
            node,
            column=column.name,
            reason=": it belongs to a table",
            advice="join a table on equal keys alone",
        )
    if not side.times:
        refuse(
            "NO_EVENT_TIME",
            node,
            what_it_is="this side of the join",
            advice="select the stream's time column in the derived table, or give the join below "
            "a time condition with both bounds",
        )
    advice = f"use {' or '.join(sorted(side.times))}"
    refuse("NOT_EVENT_TIME", node, column=column.name, reason="", advice=advice)


def _check(
    join: exp.Join,
    sides: tuple[Side, Side],
    kind: JoinKind,
    condition: OnClause,
    time: JoinTime | None,
) -> None:
    left, right = sides
    time_name = next((name.split(".")[-1] for name in sorted(left.times | right.times)), "ts")
    if not condition.keys and time is None:
        refuse("JOIN_WITHOUT_KEY", join, time=time_name)
    if not (left.streaming and right.streaming):
        _check_table_join(join, sides, kind)
        return
    for side in sides:
        for node in side.relation.node.walk():
            if isinstance(node, Aggregate) and isinstance(node.windows[0], InputWindowKind):
                window = "landmark" if isinstance(node.windows[0], Landmark) else "trailing"
                refuse("CHANGING_INPUT", join, window=window, what_it_is="a join")
    if kind == JoinKind.INNER:
        return
    name = kind.value
    if time is None:
        refuse("OUTER_JOIN_WITHOUT_TIME", join, kind=name, time=time_name)
    if isinstance(time, SameSession):
        refuse("OUTER_SESSION_JOIN", join, kind=name)
    if isinstance(time, IntervalBound):
        le, ri = time.left.name, time.right.name
        if kind.keeps_left and time.upper is None:
            example = f"{ri} <= {le} + INTERVAL 10 MINUTES"
            refuse(
                "OUTER_JOIN_UNBOUNDED", join, kind=name, side="left", bound="upper", example=example
            )
        if kind.keeps_right and time.lower is None:
            example = f"{ri} >= {le} - INTERVAL 10 MINUTES"
            refuse(
                "OUTER_JOIN_UNBOUNDED",
                join,
                kind=name,
                side="right",
                bound="lower",
                example=example,
            )


def _check_table_join(join: exp.Join, sides: tuple[Side, Side], kind: JoinKind) -> None:
    left, right = sides
    keeps_table = (kind.keeps_left and not left.streaming) or (
        kind.keeps_right and not right.streaming
    )
    if keeps_table and (left.streaming or right.streaming):
        example = "stream LEFT JOIN table" if left.streaming else "table RIGHT JOIN stream"
        refuse("OUTER_JOIN_OF_TABLE", join, kind=kind.value, example=example)
