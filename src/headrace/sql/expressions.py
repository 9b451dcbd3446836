"""Expressions of the text to typed expressions of the plan.

One binder serves every clause. It leaves aggregates in place (:class:`AggregateCall`) and window
functions as :class:`WindowCall`; the clause that allows them takes them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from headrace.plan.expressions import AggregateCall, Call, Cast, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    STRING,
    WINDOW,
    DataType,
    array,
    decimal,
)
from headrace.sql import functions_table as table
from headrace.sql.literals import (
    bind_literal,
    data_type,
    fold_cast,
    in_time_zone,
    interval_microseconds,
)
from headrace.sql.refusals import did_you_mean, refuse
from headrace.sql.scope import Visible, field_of, resolve, unknown_column
from headrace.sql.typing import (
    CoercionError,
    arithmetic_type,
    can_cast,
    common_type_of,
    comparison_type,
)
from headrace.sql.windows import bind_window_call

#: Asks somebody who knows (Spark) for the type of a function that our table does not have.
FunctionTypes = Callable[[str, tuple[DataType, ...]], DataType | None]

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
# Functions that sqlglot knows without parentheses; all of them differ at each run.
_WITHOUT_PARENTHESES = (
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.CurrentRole,
    exp.SessionUser,
)
_DATE_UNITS = (
    *("year", "quarter", "month", "week", "day", "dayofyear"),
    *("hour", "minute", "second", "millisecond", "microsecond"),
)


@dataclass
class Origins:
    """From which part of the text an expression came, by identity."""

    nodes: dict[int, tuple[Expr, exp.Expr]] = field(default_factory=dict)

    def remember(self, expr: Expr, node: exp.Expr) -> Expr:
        # The expression is kept too, so that its id stays its own.
        self.nodes.setdefault(id(expr), (expr, node))
        return expr

    def of(self, expr: Expr) -> exp.Expr | None:
        """The node it came from, or that of the first part that has one."""
        for part in expr.walk():
            if id(part) in self.nodes:
                return self.nodes[id(part)][1]
        return None


@dataclass
class ExpressionBinder:
    """Binds expressions over the columns in sight.

    ``overlay`` are names that the clause adds and that win over columns (``window`` after a
    GROUP BY); ``aliases`` are earlier columns of the SELECT, which lose to columns. Where
    ``no_aggregates`` is set it names the clause, and aggregates are refused.
    """

    columns: tuple[Visible, ...]
    functions: FunctionTypes | None
    origins: Origins
    time_zone: str | None = None
    overlay: tuple[Visible, ...] = ()
    aliases: dict[str, Expr] = field(default_factory=dict)
    no_aggregates: str | None = None
    no_window: tuple[str, str] = (
        "the query groups by no window",
        "add GROUP BY window(time, '10 minutes')",
    )
    inside_aggregate: str | None = None

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
            return Call(_PATTERNS[kind], self._pair(node), BOOLEAN)
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
        found = resolve(self.overlay, parts, node)
        if found is None:
            found = resolve(self.columns, parts, node)
        if found is None and parts[0].lower() in self.aliases:
            found = self.aliases[parts[0].lower()]
            for name in parts[1:]:
                found = field_of(found, name, node)
        if found is None:
            if parts[0].lower() in ("window", "session_window", "window_id"):
                reason, advice = self.no_window
                refuse("NO_WINDOW_COLUMN", node, name=parts[0], reason=reason, advice=advice)
            unknown_column(self.overlay + self.columns, parts, node)
        # A copy, so that each mention has its own place in the text.
        return found.with_children(found.children) if found.children else _copy(found)

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
        if not can_cast(argument.type, target):
            self._mismatch(node, f"{argument.type} cannot be cast to {target}")
        cast = fold_cast(argument, target, isinstance(node, exp.TryCast))
        return in_time_zone(cast, self.time_zone) if isinstance(cast, Literal) else cast

    def _item(self, node: exp.Bracket) -> Expr:
        value = self.bind(node.this)
        if not value.type.name.startswith(("array<", "map<")) or len(node.expressions) != 1:
            self._mismatch(node, f"[…] takes an item of an array or map, not of {value.type}")
        return Call("item", (value, self.bind(node.expressions[0])), value.type.element())

    # Functions

    def _function(self, node: exp.Anonymous) -> Expr:
        name = node.name.lower()
        if name in table.WINDOW_FUNCTIONS:
            if self.inside_aggregate is not None:
                self._unsupported(node, f"{name}() inside an aggregate", "put it into the GROUP BY")
            return bind_window_call(node, self.bind)
        canonical = table.AGGREGATE_SYNONYMS.get(name, name)
        if canonical in table.AGGREGATES:
            return self._aggregate(node, name, canonical)
        self._refuse_special(node, name)
        if name in ("struct", "named_struct"):
            return self._struct(node, name)
        for argument in node.expressions:
            if isinstance(argument, exp.Lambda):
                refuse("LAMBDA", argument, advice="compute it in the DataFrame of the stream")
        if name == "date_part" and len(node.expressions) == 2:
            return self._date_part(node, node.expressions[0], node.expressions[1])
        return self._scalar(node, name, tuple(self.bind(a) for a in node.expressions))

    def _refuse_special(self, node: exp.Anonymous, name: str) -> None:
        if name in table.NONDETERMINISTIC:
            refuse("NONDETERMINISTIC", node, name=f"{name}()", advice=table.NONDETERMINISTIC[name])
        if name == "unix_timestamp" and not node.expressions:
            refuse("NONDETERMINISTIC", node, name=f"{name}()", advice=table.NONDETERMINISTIC["now"])
        if name in table.ORDER_DEPENDENT:
            refuse("ORDER_DEPENDENT", node, name=name, advice=table.ORDER_DEPENDENT[name])
        if name in table.GENERATORS:
            refuse("LATERAL", node, what_it_is=f"{name}()")
        if name in table.RANKING:
            refuse("OVER", node, function=name)
        if name in table.OTHER_AGGREGATES:
            supported = ", ".join(sorted(table.AGGREGATES))
            self._unsupported(node, f"the aggregate {name}()", f"use one of {supported}")
        units = ("timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff")
        first = node.expressions[0].name.lower() if node.expressions else ""
        if name in units and len(node.expressions) == 3 and first in _DATE_UNITS:
            self._unsupported(
                node, f"{name}() with a unit", "add or subtract: ts + INTERVAL 5 MINUTES"
            )

    def _scalar(self, node: exp.Expr, name: str, arguments: tuple[Expr, ...]) -> Expr:
        types = tuple(argument.type for argument in arguments)
        literal_rule = table.LITERAL_RULES.get(name)
        known = table.SCALARS.get(name)
        if known is not None:
            count = len(arguments)
            if count < known.required or (known.most is not None and count > known.most):
                refuse("ARGUMENT_COUNT", node, name=name, expected=known.expected, given=count)
            try:
                kind = known.type_of(types)
                if literal_rule is not None:
                    values = tuple(a.value if isinstance(a, Literal) else None for a in arguments)
                    kind = literal_rule(types, values)
            except CoercionError as error:
                self._mismatch(node, str(error))
            if name == "window_time" and types[0] != WINDOW:
                self._mismatch(node, f"window_time() needs a window, not {types[0]}")
            return Call(name, arguments, kind)
        asked = self.functions(name, types) if self.functions is not None else None
        if asked is None:
            advice = did_you_mean(
                name,
                table.known_names(),
                "use a function of Spark, or compute it before the stream is registered",
            )
            refuse("UNKNOWN_FUNCTION", node, name=name, advice=advice)
        return Call(name, arguments, asked)

    def _aggregate(self, node: exp.Anonymous, name: str, canonical: str) -> Expr:
        if self.no_aggregates is not None:
            advice = "use HAVING" if self.no_aggregates == "WHERE" else "use a derived table"
            refuse("AGGREGATE_IN_WHERE", node, clause=self.no_aggregates, name=name, advice=advice)
        if self.inside_aggregate is not None:
            refuse("NESTED_AGGREGATE", node, outer=self.inside_aggregate, inner=name)
        self.inside_aggregate = name
        try:
            return self._aggregate_call(node, name, canonical)
        finally:
            self.inside_aggregate = None

    def _aggregate_call(self, node: exp.Anonymous, name: str, canonical: str) -> Expr:
        given = node.expressions
        distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
        if distinct:
            given = given[0].expressions
        if canonical == "count" and len(given) == 1 and isinstance(given[0], exp.Star):
            return AggregateCall("count", (), BIGINT)
        if any(isinstance(argument, exp.Order) for argument in given):
            self._unsupported(node, f"ORDER BY inside {name}()", "sort the result: sort_array(…)")
        arguments = tuple(self.bind(argument) for argument in given)
        known = table.AGGREGATES[canonical]
        count = len(arguments)
        least = 1 if canonical == "count" else known.required
        if count < least or (known.most is not None and count > known.most):
            refuse("ARGUMENT_COUNT", node, name=name, expected=known.expected, given=count)
        if canonical == "count" and not distinct and all(_constant(a) for a in arguments):
            return AggregateCall("count", (), BIGINT)
        arguments = _usual_arguments(canonical, arguments)
        types = tuple(argument.type for argument in arguments)
        try:
            kind = known.type_of(types)
        except CoercionError as error:
            self._mismatch(node, str(error))
        distinct = distinct and canonical not in table.DISTINCT_CHANGES_NOTHING
        return AggregateCall(canonical, arguments, kind, distinct)

    def _filtered(self, node: exp.Filter) -> Expr:
        aggregate = self.bind(node.this)
        if not isinstance(aggregate, AggregateCall):
            self._unsupported(node, "FILTER on something that is no aggregate")
        outer, self.inside_aggregate = self.inside_aggregate, aggregate.function
        try:
            predicate = self.condition(node.expression.this, "FILTER (WHERE …)")
        finally:
            self.inside_aggregate = outer
        return AggregateCall(
            aggregate.function, aggregate.arguments, aggregate.type, aggregate.distinct, predicate
        )

    def _struct(self, node: exp.Anonymous, name: str) -> Expr:
        """``struct(a, b AS c)`` as ``named_struct('a', a, 'c', b)``."""
        arguments: list[Expr] = []
        if name == "named_struct":
            arguments = [self.bind(argument) for argument in node.expressions]
        else:
            for index, argument in enumerate(node.expressions, start=1):
                inner = argument.this if isinstance(argument, exp.Alias) else argument
                named = isinstance(argument, exp.Alias | exp.Column)
                field_name = argument.alias_or_name if named else f"col{index}"
                arguments += [Literal(field_name, STRING), self.bind(inner)]
        names, values = arguments[0::2], arguments[1::2]
        if not all(isinstance(n, Literal) and n.type == STRING for n in names):
            self._unsupported(node, "named_struct() with computed names")
        if len(names) != len(values) or not names:
            refuse(
                "ARGUMENT_COUNT",
                node,
                name=name,
                expected="pairs of name and value",
                given=len(arguments),
            )
        pairs = zip(names, values, strict=True)
        fields = [f"{n.value!s}:{v.type}" for n, v in pairs if isinstance(n, Literal)]
        kind = DataType(f"struct<{','.join(fields)}>")
        return Call("named_struct", tuple(arguments), kind)

    def _date_part(self, node: exp.Expr, part: exp.Expr, source: exp.Expr) -> Expr:
        """``EXTRACT(field FROM source)`` and ``date_part('field', source)``."""
        name = part.name.upper()
        kind = decimal(8, 6) if name in ("SECOND", "S", "SEC", "SECONDS", "SECS") else INT
        return Call("date_part", (Literal(name, STRING), self.bind(source)), kind)

    def _function_with_syntax(self, node: exp.Expr) -> Expr:
        """Functions with a syntax of their own, and what is refused."""
        match node:
            case exp.Extract():
                return self._date_part(node, node.this, node.expression)
            case exp.Trim():
                return self._trim(node)
            case exp.Substring():
                parts = [node.this, node.args.get("start"), node.args.get("length")]
                return self._scalar(node, "substring", self._all(parts))
            case exp.StrPosition():
                parts = [node.args["substr"], node.this, node.args.get("position")]
                return self._scalar(node, "locate", self._all(parts))
            case exp.Overlay():
                parts = [node.this, node.expression, node.args.get("from_"), node.args.get("for_")]
                return self._scalar(node, "overlay", self._all(parts))
            case exp.Window():
                refuse("OVER", node, function=node.this.name)
            case exp.Exists():
                refuse("SUBQUERY", node, kind="an EXISTS (SELECT …)")
            case exp.Any() | exp.All():
                refuse("SUBQUERY", node, kind="an ANY or ALL")
            case exp.Subquery() | exp.Select() | exp.SetOperation():
                refuse("SUBQUERY", node, kind="a scalar")
            case exp.Lambda():
                refuse("LAMBDA", node, advice="compute it in the DataFrame of the stream")
            case exp.Placeholder() | exp.Parameter():
                refuse("PARAMETER", node, marker=node.sql(dialect="spark"))
            case exp.Star():
                self._unsupported(
                    node, "* inside an expression", "name the columns, or use count(*)"
                )
            case exp.Distinct():
                self._unsupported(node, "DISTINCT in a function that is no aggregate")
            case exp.Escape():
                self._unsupported(node, "LIKE … ESCAPE", "use RLIKE with a regular expression")
            case exp.WithinGroup():
                self._unsupported(
                    node, "WITHIN GROUP (ORDER BY …)", "use percentile(value, 0.5) or median(value)"
                )
            case exp.IgnoreNulls() | exp.RespectNulls():
                return self.bind(node.this)
            case exp.AtTimeZone():
                self._unsupported(node, "AT TIME ZONE", "use from_utc_timestamp(time, zone)")
            case _ if isinstance(node, _WITHOUT_PARENTHESES):
                name = node.sql(dialect="spark").removesuffix("()").lower()
                advice = table.NONDETERMINISTIC.get(name, table.NONDETERMINISTIC["now"])
                refuse("NONDETERMINISTIC", node, name=name, advice=advice)
            case _:
                self._unsupported(node, f"{type(node).__name__} ({node.sql(dialect='spark')})")

    def _all(self, parts: list[exp.Expr | None]) -> tuple[Expr, ...]:
        return tuple(self.bind(part) for part in parts if part is not None)

    def _trim(self, node: exp.Trim) -> Expr:
        value, characters = self.bind(node.this), node.expression
        side = (node.args.get("position") or "").upper()
        if characters is None:
            name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim")
            return self._scalar(node, name, (value,))
        if side in ("LEADING", "TRAILING"):
            # Spark's two-argument ltrim and rtrim take the characters first.
            name = "ltrim" if side == "LEADING" else "rtrim"
            return self._scalar(node, name, (self.bind(characters), value))
        return self._scalar(node, "btrim", (value, self.bind(characters)))

    # Refusals

    def _mismatch(self, node: exp.Expr, what: str) -> NoReturn:
        refuse("TYPE_MISMATCH", node, what_it_is=what, advice="convert one side with CAST")

    def _unsupported(self, node: exp.Expr, what: str, advice: str | None = None) -> NoReturn:
        refuse(
            "UNSUPPORTED_EXPRESSION",
            node,
            what_it_is=what,
            advice=advice or "compute it before the stream is registered",
        )


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


def _constant(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is not None


def _usual_arguments(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Percentiles in one spelling: doubles for shares, and defaults left out."""
    defaults = {"percentile": 1, "percentile_approx": 10_000}
    if name not in defaults or len(arguments) < 2:
        return arguments
    last = arguments[-1]
    if len(arguments) == 3 and isinstance(last, Literal) and last.value == defaults[name]:
        arguments = arguments[:2]

    def double(part: Expr) -> Expr:
        if isinstance(part, Literal) and part.type.is_decimal:
            return Literal(float(str(part.value)), DOUBLE)
        if isinstance(part, Call) and part.function == "array":
            return Call("array", part.arguments, array(DOUBLE))
        return part

    return (arguments[0], arguments[1].transform(double), *arguments[2:])


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
