"""What a WHERE says of the joins above it: equal keys and conditions on time, as in an ON.

``FROM a, b WHERE a.k = b.k`` is ``FROM a JOIN b ON a.k = b.k``. So that both are one plan, what
ties two inputs of a FROM is taken out of the WHERE before joins are made, and goes to the first
join that has both inputs. That is right where all joins of the FROM are inner: then ON and WHERE
are one condition. A FROM of commas alone is joined in an order in which each input is tied to
those before it, by time if it can be.

An equality whose sides can raise stays where it is, because other conditions of the WHERE may keep
rows from it, unless nothing else ties its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.errors import HeadraceError
from headrace.names import folded
from headrace.plan.expressions import Call, Cast, Column, Expr, Literal, conjuncts
from headrace.plan.times import times_to_join_by
from headrace.sql import functions_table as table
from headrace.sql.scope import Relation
from headrace.sql.time_bounds import time_bound
from headrace.sql.windows import WindowCall

#: Binds a condition of the WHERE over all columns of the FROM.
Bind = Callable[[exp.Expr], Expr]


@dataclass(frozen=True)
class Tie:
    """A condition between two inputs, by their places in the FROM."""

    part: Expr
    inputs: frozenset[int]
    timed: bool
    can_raise: bool


@dataclass
class Ties:
    """The ties of a FROM, each with the condition of the text that it is part of."""

    found: list[tuple[exp.Expr, tuple[Tie, ...]]] = field(default_factory=list)
    #: The inputs that are tables, and those of whose joins the text says nothing else.
    tables: frozenset[int] = frozenset()
    bare: frozenset[int] = frozenset()
    #: The conditions that joins have taken.
    taken: list[exp.Expr] = field(default_factory=list)

    def between(self, joined: Iterable[int], new: int) -> list[Tie]:
        """The ties of one more input with those that are joined already."""
        all_inputs = {*joined, new}
        ties = [tie for _, ties in self.found for tie in ties]
        ties = [tie for tie in ties if new in tie.inputs and tie.inputs <= all_inputs]
        sure = [tie for tie in ties if not tie.can_raise]
        return sure or (ties if new in self.bare else [])

    def within(self, inputs: frozenset[int]) -> list[Tie]:
        """The ties of some inputs with each other."""
        return [tie for _, ties in self.found for tie in ties if tie.inputs <= inputs]

    def take(self, used: Sequence[Tie]) -> None:
        """Note what joins have taken; a condition is that of a join wholly or not at all."""
        self.taken = [node for node, ties in self.found if all(tie in used for tie in ties)]

    def order(self, count: int) -> list[int]:
        """Each input after one that it is tied to, as near to the text as that allows."""
        order = [0]
        while len(order) < count:
            left = [index for index in range(count) if index not in order]
            tied = {index: self.between(order, index) for index in left}
            some = [index for index in left if tied[index]]
            # Streams that were joined by keys alone would be another kind of join.
            good = [i for i in some if i in self.tables or any(tie.timed for tie in tied[i])]
            order.append((good or some or left)[0])
        return order


def where_conjuncts(where: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions of a WHERE that must all hold."""
    open_nodes = [where]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, exp.And):
            open_nodes += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            open_nodes.append(node.this)
        else:
            yield node


def is_inner(join: exp.Join) -> bool:
    return not join.side and (join.kind or "").upper() in ("", "INNER", "CROSS")


def is_bare(join: exp.Join) -> bool:
    """Whether a join has no condition of its own, as behind a comma."""
    on = join.args.get("on")
    nothing = on is None or (isinstance(on, exp.Boolean) and on.this)
    return bool(nothing and not join.args.get("using") and not join.args.get("method"))


def find_ties(
    select: exp.Select, relations: Sequence[Relation], joins: Sequence[exp.Join], bind: Bind
) -> Ties:
    """The conditions of a SELECT's WHERE that tie inputs of its FROM."""
    where = select.args.get("where")
    if where is None or not all(map(is_inner, joins)):
        return Ties()
    ties = Ties(
        tables=frozenset(i for i, r in enumerate(relations) if not r.node.streams()),
        bare=frozenset(i for i, join in enumerate(joins, 1) if is_bare(join)),
    )
    inputs = [Input.of(relation) for relation in relations]
    timed = not has_window_of_each_input(select)
    for node in where_conjuncts(where.this):
        try:
            parts = conjuncts(bind(node))
        except HeadraceError:
            # It is refused when the WHERE is read, or speaks of a column that a join makes.
            continue
        candidates = [tie_between(part, inputs) for part in parts]
        usable = tuple(tie for tie in candidates if tie is not None and (timed or not tie.timed))
        if len(usable) == len(parts):
            ties.found.append((node, usable))
    return ties


def has_window_of_each_input(select: exp.Expr) -> bool:
    """Whether it groups by several windows: those are over a join without a condition on time, of
    whose rows the WHERE leaves some out."""
    group = select.args.get("group")
    items = [] if group is None else group.expressions
    calls = [i for i in items if isinstance(i, exp.Anonymous) and _is_window(i.name)]
    return len(calls) > 1


def _is_window(name: str) -> bool:
    return folded(name) in table.WINDOW_FUNCTIONS


@dataclass(frozen=True)
class Input:
    """An input of a FROM: its columns by the names of the FROM, and those that carry time."""

    names: frozenset[str]
    times: frozenset[str]
    streaming: bool

    @classmethod
    def of(cls, relation: Relation) -> Input:
        # A join in parentheses has no alias: its columns carry the names of its own inputs.
        prefix = "" if relation.alias is None else f"{relation.alias}."
        return cls(
            frozenset(prefix + name for name in relation.node.schema.names),
            frozenset(prefix + name for name in times_to_join_by(relation.node)),
            bool(relation.node.streams()),
        )


def tie_between(part: Expr, inputs: Sequence[Input]) -> Tie | None:
    """What a condition says of two inputs, if it is about two and ties them."""
    if not isinstance(part, Call) or len(part.arguments) != 2:
        return None
    owners = [i for i, one in enumerate(inputs) if part.columns() & one.names]
    if len(owners) != 2:
        return None
    left, right = (inputs[i] for i in owners)
    one, other = part.arguments
    apart = all(
        any(bool(side.columns()) and side.columns() <= each.names for each in (left, right))
        for side in (one, other)
    )
    if any(isinstance(inner, WindowCall) for inner in part.walk()):
        windows = isinstance(one, WindowCall) and isinstance(other, WindowCall)
        pair = part.function == "=" and windows and apart
        return Tie(part, frozenset(owners), True, False) if pair else None
    if time_bound(part, left.times, right.times) is not None:
        return Tie(part, frozenset(owners), True, False)
    if part.function not in ("=", "<=>") or not apart:
        return None
    of_times = all(side.columns() <= left.times | right.times for side in (one, other))
    timed = of_times and part.function == "="
    raises = not (_is_plain(one) and _is_plain(other) and _compare(one, other))
    return Tie(part, frozenset(owners), timed, raises)


def _is_plain(expr: Expr) -> bool:
    """Whether it is a column, or a field of one; that never raises."""
    return all(
        isinstance(each, Column | Literal)
        or (isinstance(each, Call) and each.function in ("field", "window_time"))
        or (isinstance(each, Cast) and _widens(each))
        for each in expr.walk()
    )


def _widens(cast: Cast) -> bool:
    """Whether it is one that comparing numbers brings along."""
    given, wanted = cast.argument.type, cast.type
    whole = given.is_integer and wanted.name == "bigint"
    return given == wanted or whole or (given.is_numeric and wanted.name == "double")


def _compare(one: Expr, other: Expr) -> bool:
    """Whether two values meet at one type without a cast that can raise."""
    return one.type == other.type or (one.type.is_numeric and other.type.is_numeric)
