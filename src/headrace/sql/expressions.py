"""Expressions of the text to typed expressions of the plan: names and operators.

One binder serves every clause. It leaves aggregates in place (:class:`AggregateCall`) and window
functions as :class:`WindowCall`; the clause that allows them takes them out. Function calls are
in ``calls``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.names import folded
from headrace.plan.expressions import Call, Cast, Expr, Literal
from headrace.plan.types import (
    BOOLEAN,
    DATE,
    INTERVAL,
    NULL,
    STRING,
    DataType,
)
from headrace.sql import functions_table as table
from headrace.sql.calls import CallBinder, FunctionTypes, Origins
from headrace.sql.dialect import TYPED_LITERAL
from headrace.sql.literals import (
    bind_literal,
    fold_cast,
    in_time_zone,
    interval_microseconds,
    is_time,
)
from headrace.sql.refusals import refuse
from headrace.sql.scope import field_of, resolve, unknown_column
from headrace.sql.type_names import data_type
from headrace.sql.typing import (
    CoercionError,
    arithmetic_type,
    can_cast,
    common_type_of,
    comparison_type,
    is_temporal,
)
from headrace.sql.volatile import is_moving_time

_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NullSafeEQ: "<=>",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_BITWISE: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
_PATTERNS: dict[type[exp.Expr], str] = {
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
}
_SHIFTS: dict[type[exp.Expr], str] = {
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}


@dataclass
class ExpressionBinder(CallBinder):
    """Binds expressions over the columns in sight."""

    def bind(self, node: exp.Expr) -> Expr:
        return self.origins.remember(self._bind(node), node)

    def condition(self, node: exp.Expr, clause: str) -> Expr:
        """An expression that must be true or false."""
        predicate = self.bind(node)
        if predicate.type == NULL:
            return Cast(predicate, BOOLEAN)
        if predicate.type != BOOLEAN:
            refuse("NOT_A_CONDITION", node, clause=clause, type=predicate.type)
        return predicate

    def _bind(self, node: exp.Expr) -> Expr:
        literal = bind_literal(node)
        if literal is not None:
            return literal
        kind = type(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], node)
        if kind in _COMPARISONS:
            return self._comparison(_COMPARISONS[kind], node)
        if kind in _BITWISE:
            return self._bitwise(_BITWISE[kind], node)
        if kind in _PATTERNS and not isinstance(node.expression, exp.Any | exp.All):
            match = Call(_PATTERNS[kind], self._pair(node), BOOLEAN)
            # sqlglot marks NOT LIKE on the node itself instead of wrapping it.
            return Call("not", (match,), BOOLEAN) if node.args.get("negate") else match
        if kind in _SHIFTS:
            return self._scalar(node, _SHIFTS[kind], self._pair(node))
        match node:
            case exp.Column() | exp.Dot() | exp.Identifier():
                return self._column(node)
            case exp.Paren():
                return self.bind(node.this)
            case exp.And() | exp.Or():
                left = self.condition(node.left, "AND and OR")
                right = self.condition(node.right, "AND and OR")
                return Call("and" if isinstance(node, exp.And) else "or", (left, right), BOOLEAN)
            case exp.Not():
                return Call("not", (self.condition(node.this, "NOT"),), BOOLEAN)
            case exp.Neg():
                return self._negative(node)
            case exp.BitwiseNot():
                argument = self.bind(node.this)
                if not argument.type.is_integer:
                    self._mismatch(node, f"~ needs a whole number, not {argument.type}")
                return Call("~", (argument,), argument.type)
            case exp.DPipe():
                return self._concatenated(node)
            case exp.NullSafeNEQ():
                return Call("not", (self._comparison("<=>", node),), BOOLEAN)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.Is():
                return self._is(node)
            case exp.Case():
                return self._case(node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Bracket():
                return self._item(node)
            case exp.Anonymous():
                return self._function(node)
            case exp.Filter():
                return self._filtered(node)
            case _:
                return self._function_with_syntax(node)

    # Names

    def _column(self, node: exp.Expr) -> Expr:
        if isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Identifier):
            self._unsupported(node, "a method call")
        if isinstance(node, exp.Dot) and not isinstance(node.this, exp.Column | exp.Dot):
            return field_of(self.bind(node.this), node.name, node)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            self._unsupported(node, "* inside an expression", "name the columns")
        parts = _name_parts(node)
        bound = resolve(self.overlay, parts, node)
        if bound is None:
            bound = resolve(self.columns, parts, node)
        if bound is None and folded(parts[0]) in self.aliases:
            bound = self.aliases[folded(parts[0])]
            for name in parts[1:]:
                bound = field_of(bound, name, node)
        if bound is None:
            if parts[0].lower() in ("window", "session_window", "window_id"):
                reason, advice = self.no_window
                refuse("NO_WINDOW_COLUMN", node, name=parts[0], reason=reason, advice=advice)
            unknown_column(self.overlay + self.columns, parts, node)
        # A copy, so that each mention has its own place in the text.
        return bound.with_children(bound.children) if bound.children else _copy(bound)

    # Operators

    def _pair(self, node: exp.Expr) -> tuple[Expr, Expr]:
        return self.bind(node.this), self.bind(node.expression)

    def _arithmetic(self, operator: str, node: exp.Expr) -> Expr:
        pair = self._pair(node)
        digits = (_literal_digits(pair[0]), _literal_digits(pair[1]))
        try:
            kind = arithmetic_type(operator, pair[0].type, pair[1].type, digits)
        except CoercionError as error:
            self._mismatch(node, f"{pair[0].type} {operator} {pair[1].type}: {error}")
        if DATE in (pair[0].type, pair[1].type) and any(_whole_days(e) for e in pair):
            kind = DATE
        return Call(operator, pair, kind)

    def _comparison(self, operator: str, node: exp.Expr) -> Expr:
        return self._compare(operator, *self._pair(node), node)

    def _compare(self, operator: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
        try:
            comparison_type(left.type, right.type)
        except CoercionError:
            self._mismatch(node, f"{left.type} and {right.type} cannot be compared with {operator}")
        return self.origins.remember(Call(operator, (left, right), BOOLEAN), node)

    def _bitwise(self, operator: str, node: exp.Expr) -> Expr:
        pair = self._pair(node)
        types = (pair[0].type, pair[1].type)
        strings = all(kind == STRING for kind in types)
        if strings or not all(kind.is_integer or kind in (STRING, NULL) for kind in types):
            self._mismatch(node, f"{operator} needs whole numbers, not {types[0]} and {types[1]}")
        return Call(operator, pair, common_type_of(types))

    def _concatenated(self, node: exp.Expr) -> Expr:
        pair = self._pair(node)
        try:
            kind = table.SCALARS["concat"].type_of((pair[0].type, pair[1].type))
        except CoercionError as error:
            self._mismatch(node, str(error))
        return Call("||", pair, kind)

    def _negative(self, node: exp.Expr) -> Expr:
        argument = self.bind(node.this)
        if isinstance(argument, Literal):
            value = argument.value
            if argument.type.is_interval:
                text = str(value)
                flipped = text.removeprefix("-") if text.startswith("-") else f"-{text}"
                return Literal(flipped, argument.type)
            if argument.type.is_numeric and not isinstance(value, str | None):
                return Literal(-value, argument.type)  # type: ignore[operator]
        if not (argument.type.is_numeric or argument.type.is_interval):
            self._mismatch(node, f"- needs a number, not {argument.type}")
        return Call("negative", (argument,), argument.type)

    def _between(self, node: exp.Between) -> Expr:
        """``x BETWEEN a AND b`` as ``x >= a AND x <= b``."""
        low, high = node.args["low"], node.args["high"]
        from_low = self._compare(">=", self.bind(node.this), self.bind(low), node)
        to_high = self._compare("<=", self.bind(node.this), self.bind(high), node)
        return Call("and", (from_low, to_high), BOOLEAN)

    def _in(self, node: exp.In) -> Expr:
        if node.args.get("query") is not None:
            refuse("SUBQUERY", node.args["query"], kind="an IN (SELECT …)")
        value = self.bind(node.this)
        listed = [self.bind(item) for item in node.expressions]
        try:
            common_type_of((value.type, *(item.type for item in listed)))
        except CoercionError as error:
            self._mismatch(node, f"IN compares different types: {error}")
        return Call("in", (value, *listed), BOOLEAN)

    def _is(self, node: exp.Is) -> Expr:
        value = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return Call("isnull", (value,), BOOLEAN)
        truth = self.bind(node.expression)
        if truth.type != BOOLEAN or value.type not in (BOOLEAN, NULL):
            self._mismatch(node, f"IS TRUE and IS FALSE need a condition, not {value.type}")
        return Call("<=>", (value, truth), BOOLEAN)

    def _case(self, node: exp.Case) -> Expr:
        arguments: list[Expr] = []
        for branch in node.args["ifs"]:
            if node.this is not None:
                pair = (self.bind(node.this), self.bind(branch.this))
                try:
                    comparison_type(pair[0].type, pair[1].type)
                except CoercionError as error:
                    self._mismatch(branch, f"CASE compares different types: {error}")
                arguments.append(Call("=", pair, BOOLEAN))
            else:
                arguments.append(self.condition(branch.this, "CASE WHEN"))
            arguments.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        arguments.append(self.bind(default) if default is not None else Literal(None, NULL))
        values = [*arguments[1:-1:2], arguments[-1]]
        try:
            kind = common_type_of(tuple(value.type for value in values))
        except CoercionError as error:
            self._mismatch(node, f"CASE gives different types: {error}")
        return Call("case", tuple(arguments), kind)

    def _cast(self, node: exp.Cast | exp.TryCast) -> Expr:
        if node.args.get("format") is not None:
            self._unsupported(node, "CAST with a FORMAT", "use to_date or to_timestamp")
        argument, target = self.bind(node.this), data_type(node.args["to"])
        if node.meta.get(TYPED_LITERAL):
            self._check_typed_literal(node, argument, target)
        if not can_cast(argument.type, target):
            self._mismatch(node, f"{argument.type} cannot be cast to {target}")
        cast = fold_cast(argument, target, isinstance(node, exp.TryCast))
        return in_time_zone(cast, self.time_zone) if isinstance(cast, Literal) else cast

    def _check_typed_literal(self, node: exp.Cast, argument: Expr, target: DataType) -> None:
        """``DATE 'x'``: only times are written so, and x must be one."""
        text = argument.value if isinstance(argument, Literal) else None
        if not is_temporal(target):
            self._unsupported(node, f"a constant of the form {target.name.upper()} '…'", "use CAST")
        if isinstance(text, str) and not is_time(text) and not is_moving_time(text):
            refuse(
                "SYNTAX_ERROR",
                node,
                near="",
                reason=f"{text!r} is no {target}",
                advice="write for example DATE '2024-01-31' or TIMESTAMP '2024-01-31 12:30:00'",
            )

    def _item(self, node: exp.Bracket) -> Expr:
        value = self.bind(node.this)
        if not value.type.name.startswith(("array<", "map<")) or len(node.expressions) != 1:
            self._mismatch(node, f"[…] takes an item of an array or map, not of {value.type}")
        return Call("item", (value, self.bind(node.expressions[0])), value.type.element())


def _name_parts(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Dot):
        return [*_name_parts(node.this), node.name]
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    return [node.name]


def _copy(expr: Expr) -> Expr:
    clone = object.__new__(type(expr))
    clone.__dict__.update(expr.__dict__)
    return clone


def _whole_days(expr: Expr) -> bool:
    """An interval of days, which moves a date to a date."""
    return (
        isinstance(expr, Literal)
        and expr.type == INTERVAL
        and interval_microseconds(expr) % 86_400_000_000 == 0
    )


def _literal_digits(expr: Expr) -> int | None:
    if isinstance(expr, Literal) and expr.type.is_integer and isinstance(expr.value, int):
        return len(str(abs(expr.value)))
    return None


__all__ = ["ExpressionBinder", "FunctionTypes", "Origins"]
