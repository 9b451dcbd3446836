"""Plans written otherwise, with the same meaning: what merging should find, and must not exceed.

Every rule here is an identity of SQL's three-valued logic, or of whole numbers where nothing can
overflow; it shares no code with ``headrace.merge``. In exact arithmetic a rule is refused where a
sum might overflow that did not before (``room``), or where an error might come to rows that were
kept from it (``may_raise``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, Named
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    JoinKind,
    JoinTime,
    Node,
    Project,
    SameWindow,
    Union,
)
from headrace.plan.substitute import definitions, identity, substituted
from headrace.plan.types import BIGINT, BOOLEAN, STRING
from tests.merge.generate import arithmetic, truth, whole, wide

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "<=>": "<=>"}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def room(expr: Expr) -> tuple[int, int] | None:
    """The least and greatest that a whole number can be; None where it might overflow."""
    if not expr.type.is_integer:
        return None
    half = 1 << (_BITS[expr.type.name] - 1)
    match expr:
        case Column():
            return -half, half - 1
        case Literal(value=int(value)):
            return value, value
        case Cast(argument=argument):
            found = room(argument)
        case Call(function="negative", arguments=(argument,)):
            inside = room(argument)
            found = None if inside is None else (-inside[1], -inside[0])
        case Call(function="+" | "-" | "*", arguments=(left, right)):
            a, b = room(left), room(right)
            if a is None or b is None:
                return None
            sign = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y}
            corners = [sign[expr.function](x, y) for x in a for y in b]
            found = (min(corners), max(corners))
        case _:
            return None
    return found if found is not None and -half <= found[0] and found[1] < half else None


def may_raise(expr: Expr) -> bool:
    """Whether some part of it might overflow or divide by zero."""
    for part in expr.walk():
        if isinstance(part, Call) and part.function in ("div", "%", "abs"):
            return True
        sums = isinstance(part, Call) and part.function in ("+", "-", "*", "negative")
        narrows = isinstance(part, Cast) and part.argument.type.is_integer
        if (sums or narrows) and part.type.is_integer and room(part) is None:
            return True
    return False


class Rewriter:
    """Writes plans and expressions otherwise. Only ``exact`` minds errors."""

    def __init__(self, chance: random.Random, exact: bool = True) -> None:
        self.chance = chance
        self.exact = exact

    def _fits(self, *exprs: Expr) -> bool:
        return not self.exact or all(room(expr) is not None for expr in exprs)

    def _calm(self, *exprs: Expr) -> bool:
        """Whether these may be evaluated in any order, or once more."""
        return not self.exact or not any(map(may_raise, exprs))

    # Conditions

    def condition(self, expr: Expr) -> Expr:
        """The same in three-valued logic."""
        if isinstance(expr, Call):
            parts = [
                self.condition(a) if a.type == BOOLEAN else self.value(a) for a in expr.arguments
            ]
            expr = expr.with_children(tuple(parts))
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            expr = self._one_of(self._rules, expr)
        return expr

    def _one_of(self, rules: list[Callable[[Expr], Expr | None]], expr: Expr) -> Expr:
        for rule in self.chance.sample(rules, len(rules)):
            changed = rule(expr)
            if changed is not None:
                return changed
        return expr

    @property
    def _rules(self) -> list[Callable[[Expr], Expr | None]]:
        common = [self._flip, self._push_not, self._other_spelling, self._swap, self._regroup]
        common += [self._shift, self._scale, self._to_one_side, self._next_number]
        rare = [self._double_not, self._pull_not, self._absorb, self._distribute, self._repeat]
        return common * 2 + rare

    def _flip(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function=function, arguments=(a, b)) if function in _FLIPPED:
                return truth(_FLIPPED[function], b, a) if self._calm(a, b) else None
        return None

    def _push_not(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="not", arguments=(Call(function="not", arguments=(inner,)),)):
                return inner
            case Call(function="not", arguments=(Call(function=f, arguments=(a, b)),)) if (
                f in _NEGATED
            ):
                return truth(_NEGATED[f], a, b)
            case Call(function="not", arguments=(Call(function="and" | "or" as f, arguments=p),)):
                other = "or" if f == "and" else "and"
                return truth(other, *(truth("not", part) for part in p))
            case Call(function="not", arguments=(Call(function="in", arguments=(x, *choices)),)):
                return self._joined("and", [truth("!=", x, c) for c in choices], x)
            case Call(function="not", arguments=(Call(function="isnull", arguments=p),)):
                return truth("isnotnull", *p)
        return None

    def _pull_not(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function=f, arguments=(a, b)) if f in _NEGATED:
                return truth("not", truth(_NEGATED[f], a, b))
            case Call(function="and" | "or" as f, arguments=parts):
                other = "or" if f == "and" else "and"
                return truth("not", truth(other, *(truth("not", part) for part in parts)))
            case Call(function="isnull", arguments=parts):
                return truth("not", truth("isnotnull", *parts))
        return None

    def _double_not(self, expr: Expr) -> Expr | None:
        return truth("not", truth("not", expr))

    def _other_spelling(self, expr: Expr) -> Expr | None:
        """IN and OR, LIKE and =, a flag and ``= TRUE``."""
        match expr:
            case Call(function="in", arguments=(x, *choices)):
                return self._joined("or", [truth("=", x, c) for c in choices], x)
            case Call(function="or", arguments=(Call() as a, Call() as b)):
                return self._as_in(a, b)
            case Call(function="like", arguments=(x, Literal(value="a") as c)):
                return truth("=", x, c)
            case Call(function="=", arguments=(x, Literal(value="a", data_type=kind) as c)) if (
                kind == STRING
            ):
                return truth("like", x, c)
            case Call(function="=", arguments=(x, Literal(value=bool(wanted)))):
                return x if wanted else truth("not", x)
            case Call(function="=", arguments=(x, Literal() as c)) if x.type == c.type:
                return truth("in", x, c)
            case Column() if expr.type == BOOLEAN:
                return truth("=", expr, Literal(True, BOOLEAN))
        return None

    def _joined(self, function: str, parts: list[Call], repeated: Expr) -> Expr | None:
        if len(parts) > 1 and not self._calm(repeated):
            return None
        result: Expr = parts[0]
        for part in parts[1:]:
            result = truth(function, result, part)
        return result

    def _as_in(self, a: Call, b: Call) -> Expr | None:
        if a.function != "=" or b.function != "=" or a.arguments[0] != b.arguments[0]:
            return None
        value, one = a.arguments
        other = b.arguments[1]
        literals = isinstance(one, Literal) and isinstance(other, Literal)
        if not literals or one.type != other.type or not self._calm(value):
            return None
        return truth("in", value, one, other)

    def _swap(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="and" | "or" as f, arguments=parts) if self._calm(expr):
                return truth(f, *self.chance.sample(parts, len(parts)))
        return None

    def _regroup(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="and" | "or" as f, arguments=(Call() as a, b)) if a.function == f:
                return truth(f, a.arguments[0], truth(f, *a.arguments[1:], b))
            case Call(function="and" | "or" as f, arguments=(a, Call() as b)) if b.function == f:
                return truth(f, truth(f, a, b.arguments[0]), *b.arguments[1:])
        return None

    def _absorb(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="and", arguments=(a, b)) if self._calm(expr):
                return truth("and", truth("or", a, truth("and", b, a)), b)
        return None

    def _distribute(self, expr: Expr) -> Expr | None:
        if not self._calm(expr):
            return None
        match expr:
            case Call(function="and", arguments=(a, Call(function="or", arguments=(b, c)))):
                return truth("or", truth("and", a, b), truth("and", a, c))
            case Call(function="or", arguments=(a, Call(function="and", arguments=(b, c)))):
                return truth("and", truth("or", a, b), truth("or", a, c))
        return None

    def _repeat(self, expr: Expr) -> Expr | None:
        return truth(self.chance.choice(("and", "or")), expr, expr) if self._calm(expr) else None

    # Comparisons of whole numbers

    def _sides(self, expr: Expr) -> tuple[str, Expr, Expr] | None:
        match expr:
            case Call(function=f, arguments=(a, b)) if f in _NEGATED:
                if a.type.is_integer and b.type.is_integer and self._fits(a, b):
                    return f, wide(a), wide(b)
        return None

    def _compared(self, function: str, left: Expr, right: Expr) -> Expr | None:
        return truth(function, left, right) if self._fits(left, right) else None

    def _shift(self, expr: Expr) -> Expr | None:
        """``a < b`` and ``a + k < b + k``."""
        sides = self._sides(expr)
        if sides is None:
            return None
        function, a, b = sides
        sign, by = self.chance.choice("+-"), whole(self.chance.choice((1, 2, 5)))
        return self._compared(function, arithmetic(sign, a, by), arithmetic(sign, b, by))

    def _scale(self, expr: Expr) -> Expr | None:
        """``n < k`` and ``10 * n < 10 * k - 5``."""
        sides = self._sides(expr)
        if sides is None:
            return None
        function, a, b = sides
        factor = self.chance.choice((2, 3, 10, -1, -2))
        if factor < 0:
            function = _FLIPPED[function]
        left, right = (arithmetic("*", side, whole(factor)) for side in (a, b))
        if factor > 0 and function == "<":
            right = arithmetic("-", right, whole(self.chance.randrange(factor)))
        if factor > 0 and function == "<=":
            right = arithmetic("+", right, whole(self.chance.randrange(factor)))
        return self._compared(function, left, right)

    def _to_one_side(self, expr: Expr) -> Expr | None:
        sides = self._sides(expr)
        if sides is None:
            return None
        function, a, b = sides
        return self._compared(function, arithmetic("-", a, b), whole(0))

    def _next_number(self, expr: Expr) -> Expr | None:
        """``a < b`` and ``a + 1 <= b``."""
        sides = self._sides(expr)
        if sides is None:
            return None
        function, a, b = sides
        if function == "<":
            return self._compared("<=", arithmetic("+", a, whole(1)), b)
        if function == ">=":
            return self._compared(">", a, arithmetic("-", b, whole(1)))
        return None

    # Values

    def value(self, expr: Expr) -> Expr:
        """The same value, of the same type."""
        if expr.type == BOOLEAN:
            return self.condition(expr)
        if isinstance(expr, Call | Cast):
            expr = expr.with_children(tuple(self.value(child) for child in expr.children))
        if expr.type.is_integer and self.chance.random() < 0.5:
            rules = [self._commute, self._associate, self._multiply_out, self._add_nothing]
            changed = self._one_of([*rules, self._subtract_otherwise], expr)
            if changed.type == expr.type:
                return changed
        return expr

    def _kept(self, expr: Expr) -> Expr | None:
        return expr if self._fits(expr) else None

    def _commute(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="+" | "*" as f, arguments=(a, b)) if self._calm(a, b):
                return Call(f, (b, a), expr.type)
        return None

    def _associate(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="+" | "*" as f, arguments=(Call(function=g, arguments=(a, b)), c)):
                if f == g and self._fits(expr):
                    return self._kept(arithmetic(f, a, arithmetic(f, b, c)))
        return None

    def _multiply_out(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="*", arguments=(Call(function="+" | "-" as f, arguments=(a, b)), c)):
                if self._fits(expr):
                    products = (arithmetic("*", a, c), arithmetic("*", b, c))
                    return self._kept(arithmetic(f, *products))
            case Call(function="+", arguments=(a, b)) if a == b and self._fits(expr):
                return self._kept(arithmetic("*", a, whole(2)))
        return None

    def _add_nothing(self, expr: Expr) -> Expr | None:
        if expr.type != BIGINT or not self._fits(expr):
            return None
        by = whole(self.chance.choice((1, 2, 3)))
        return self._kept(arithmetic("-", arithmetic("+", expr, by), by))

    def _subtract_otherwise(self, expr: Expr) -> Expr | None:
        match expr:
            case Call(function="-", arguments=(a, b)) if self._fits(expr):
                return self._kept(arithmetic("+", a, arithmetic("*", b, whole(-1))))
            case Call(function="negative", arguments=(a,)):
                return self._kept(arithmetic("-", whole(0, a.type), a))
        return None

    # Plans

    def plan(self, node: Node) -> Node:
        """The same rows, in columns of the same names."""
        node = node.with_inputs(tuple(self.plan(below) for below in node.inputs))
        match node:
            case Filter():
                return self._filter(node)
            case Project():
                return self._project(node)
            case Union():
                return self._union(node)
            case Aggregate():
                return self._aggregate(node)
            case Join():
                return self._join(node)
            case _:
                return node

    def _filter(self, node: Filter) -> Node:
        predicate = self.condition(node.predicate)
        below = node.input
        match predicate, below:
            case (Call(function="and", arguments=(a, b)), _) if self.chance.random() < 0.5:
                return Filter(Filter(below, a), b)
            case (_, Filter(input=lower, predicate=first)) if self.chance.random() < 0.7:
                if self._calm(first, predicate) and self.chance.random() < 0.5:
                    return Filter(Filter(lower, predicate), first)
                return Filter(lower, truth("and", first, predicate))
            case (_, Project(input=lower, columns=columns)) if self.chance.random() < 0.7:
                return Project(Filter(lower, substituted(predicate, definitions(columns))), columns)
            case (_, Union(parts=parts)) if self.chance.random() < 0.7:
                names = below.schema.names
                lowered = [
                    Filter(part, substituted(predicate, _by_position(names, part)))
                    for part in parts
                ]
                return Union(tuple(lowered))
            case (_, Join(kind=JoinKind.INNER) as join) if self.chance.random() < 0.6:
                return self._filter_below(join, predicate)
        return Filter(below, predicate)

    def _filter_below(self, join: Join, predicate: Expr) -> Node:
        for side, alias in (("left", join.left_alias), ("right", join.right_alias)):
            below = getattr(join, side)
            prefix = "" if alias is None else f"{alias}."
            names = {prefix + f.name: Column(f.name, f.type) for f in below.schema}
            if predicate.columns() and predicate.columns() <= names.keys():
                lowered = Filter(below, substituted(predicate, names))
                return replace(join, **{side: lowered})  # type: ignore[arg-type]
        known = join.residual
        return replace(
            join, residual=predicate if known is None else truth("and", known, predicate)
        )

    def _project(self, node: Project) -> Node:
        columns = [Named(c.name, self.value(c.expr)) for c in node.columns]
        node = Project(node.input, tuple(columns))
        draw = self.chance.random()
        if draw < 0.25:
            # Under other names first.
            lower = Project(node.input, tuple(Named(f"p_{c.name}", c.expr) for c in columns))
            names = [Named(c.name, Column(f"p_{c.name}", c.expr.type)) for c in columns]
            return Project(lower, tuple(names))
        if draw < 0.5 and len(columns) > 1:
            # One column after the other.
            kept = [Named(f"k_{f.name}", Column(f.name, f.type)) for f in node.input.schema]
            first, *rest = columns
            lower = Project(node.input, (first, *kept))
            back = {f.name: Column(f"k_{f.name}", f.type) for f in node.input.schema}
            rest = [Named(c.name, substituted(c.expr, back)) for c in rest]
            upper = (Named(first.name, Column(first.name, first.expr.type)), *rest)
            return Project(lower, upper)
        if draw < 0.65 and isinstance(node.input, Filter):
            return self._filter_above(node, node.input)
        return node

    def _filter_above(self, node: Project, below: Filter) -> Node:
        """The filter over a projection that keeps all it needs."""
        kept = [Named(f"k_{f.name}", Column(f.name, f.type)) for f in below.schema]
        lower = Project(below.input, (*node.columns, *kept))
        back = {f.name: Column(f"k_{f.name}", f.type) for f in below.schema}
        return Project(Filter(lower, substituted(below.predicate, back)), identity(node.schema))

    def _union(self, node: Union) -> Node:
        names = node.schema.names
        parts = [
            part if part.schema.names == names else Project(part, _renamed(names, part))
            for part in node.parts
        ]
        self.chance.shuffle(parts)
        if len(parts) > 2 and self.chance.random() < 0.5:
            return Union((Union(tuple(parts[:2])), *parts[2:]))
        return Union(tuple(parts))

    def _aggregate(self, node: Aggregate) -> Node:
        calls = []
        for named in node.aggregates:
            call = named.expr
            assert isinstance(call, AggregateCall)
            arguments = tuple(self.value(argument) for argument in call.arguments)
            chosen = None if call.filter is None else self.condition(call.filter)
            calls.append(Named(named.name, replace(call, arguments=arguments, filter=chosen)))
        keys = [Named(key.name, self.value(key.expr)) for key in node.keys]
        shuffled = replace(
            node,
            keys=tuple(self.chance.sample(keys, len(keys))),
            aggregates=tuple(self.chance.sample(calls, len(calls))),
            windows=tuple(self.chance.sample(node.windows, len(node.windows))),
        )
        return Project(shuffled, identity(node.schema))

    def _join(self, node: Join) -> Node:
        if node.kind is not JoinKind.INNER or self.chance.random() < 0.3:
            return node
        if isinstance(node.left, Join) and self.chance.random() < 0.6:
            return _reordered(node, node.left)
        swapped = replace(
            node,
            left=node.right,
            right=node.left,
            left_alias=node.right_alias,
            right_alias=node.left_alias,
            keys=tuple((b, a) for a, b in self.chance.sample(node.keys, len(node.keys))),
            time=None if node.time is None else _mirrored(node.time),
        )
        return Project(swapped, identity(node.schema)) if self.chance.random() < 0.3 else swapped


def _reordered(node: Join, first: Join) -> Node:
    """``(a JOIN b) JOIN c`` as ``(a JOIN c) JOIN b``, where b has nothing to do with c."""
    own = set(first.left_schema.names)
    read = {left.name for left, _ in node.keys if isinstance(left, Column)}
    read |= {time.left.name for time in node.times}
    if first.kind is not JoinKind.INNER or node.residual is not None or not read <= own:
        return node
    lower = replace(node, left=first.left, left_alias=first.left_alias)
    return replace(first, left=lower, left_alias=None)


def _mirrored(time: JoinTime) -> JoinTime:
    match time:
        case IntervalBound(lower=lower, upper=upper):
            assert lower is not None
            assert upper is not None
            return IntervalBound(time.right, time.left, -upper, -lower)
        case SameWindow(window=window):
            return SameWindow(time.right, time.left, window)
        case _:
            raise AssertionError(time)


def _by_position(names: tuple[str, ...], part: Node) -> dict[str, Expr]:
    return {
        ours: Column(theirs.name, theirs.type)
        for ours, theirs in zip(names, part.schema, strict=True)
    }


def _renamed(names: tuple[str, ...], part: Node) -> tuple[Named, ...]:
    return tuple(
        Named(ours, Column(theirs.name, theirs.type))
        for ours, theirs in zip(names, part.schema, strict=True)
    )
