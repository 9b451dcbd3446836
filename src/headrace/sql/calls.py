"""Calls of functions and aggregates, and the refusals of those that have no place here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NoReturn

from sqlglot import exp

from headrace.plan.expressions import AggregateCall, Call, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    DOUBLE,
    INT,
    STRING,
    WINDOW,
    DataType,
    array,
    decimal,
)
from headrace.sql import functions_table as table
from headrace.sql.literals import Zone
from headrace.sql.refusals import did_you_mean, refuse
from headrace.sql.scope import Visible
from headrace.sql.typing import (
    CoercionError,
)
from headrace.sql.windows import bind_window_call


@dataclass(frozen=True)
class AskedFunction:
    """What Spark says of a function that our table does not have."""

    type: DataType
    deterministic: bool = True


#: Asks somebody who knows (Spark) for a function by its name and the types of its arguments.
FunctionTypes = Callable[[str, tuple[DataType, ...]], AskedFunction | None]

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
class CallBinder:
    """Binds expressions over the columns in sight.

    ``overlay`` are names that the clause adds and that win over columns (``window`` after a
    GROUP BY); ``aliases`` are earlier columns of the SELECT, which lose to columns. Where
    ``no_aggregates`` is set it names the clause, and aggregates are refused.
    """

    columns: tuple[Visible, ...]
    functions: FunctionTypes | None
    origins: Origins
    time_zone: Zone = None
    overlay: tuple[Visible, ...] = ()
    aliases: dict[str, Expr] = field(default_factory=dict)
    no_aggregates: str | None = None
    no_window: tuple[str, str] = (
        "the query groups by no window",
        "add GROUP BY window(time, '10 minutes')",
    )
    inside_aggregate: str | None = None

    def bind(self, node: exp.Expr) -> Expr:
        """Any expression; the operators are bound by the class above."""
        raise NotImplementedError

    def condition(self, node: exp.Expr, clause: str) -> Expr:
        """An expression that must be true or false."""
        raise NotImplementedError

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
        signature = table.SCALARS.get(name)
        if signature is not None:
            count = len(arguments)
            if count < signature.required or (
                signature.most is not None and count > signature.most
            ):
                refuse("ARGUMENT_COUNT", node, name=name, expected=signature.expected, given=count)
            try:
                kind = signature.type_of(types)
                if literal_rule is not None:
                    values = tuple(a.value if isinstance(a, Literal) else None for a in arguments)
                    kind = literal_rule(types, values)
            except CoercionError as error:
                self._mismatch(node, str(error))
            if name == "window_time" and types[0] != WINDOW:
                self._mismatch(node, f"window_time() needs a window, not {types[0]}")
            return Call(name, arguments, kind)
        spark_function = self.functions(name, types) if self.functions is not None else None
        if spark_function is None:
            advice = did_you_mean(
                name,
                table.known_names(),
                "use a function of Spark, or compute it before the stream is registered",
            )
            refuse("UNKNOWN_FUNCTION", node, name=name, advice=advice)
        if not spark_function.deterministic:
            advice = table.NONDETERMINISTIC["rand"]
            refuse("NONDETERMINISTIC", node, name=f"{name}()", advice=advice)
        return Call(name, arguments, spark_function.type)

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
            if distinct:
                self._unsupported(node, "count(DISTINCT *)", "name the columns")
            return AggregateCall("count", (), BIGINT)
        if any(isinstance(argument, exp.Order) for argument in given):
            self._unsupported(node, f"ORDER BY inside {name}()", "sort the result: sort_array(…)")
        arguments = tuple(self.bind(argument) for argument in given)
        function = table.AGGREGATES[canonical]
        count = len(arguments)
        least = 1 if canonical == "count" else function.required
        if count < least or (function.most is not None and count > function.most):
            refuse("ARGUMENT_COUNT", node, name=name, expected=function.expected, given=count)
        if canonical == "count" and not distinct and all(_constant(a) for a in arguments):
            return AggregateCall("count", (), BIGINT)
        arguments = _usual_arguments(canonical, arguments)
        if canonical == "approx_count_distinct" and count == 2:
            arguments = (arguments[0], *self._error(node, arguments[1]))
        types = tuple(argument.type for argument in arguments)
        try:
            kind = function.type_of(types)
        except CoercionError as error:
            self._mismatch(node, str(error))
        distinct = distinct and canonical not in table.DISTINCT_CHANGES_NOTHING
        return AggregateCall(canonical, arguments, kind, distinct)

    def _error(self, node: exp.Anonymous, given: Expr) -> tuple[Expr, ...]:
        """The error that an approximate count may have, where it is not the usual one."""
        number = given.value if isinstance(given, Literal) else None
        if not isinstance(number, int | float | Decimal) or not 0.0044 <= float(number) <= 0.39:
            self._unsupported(
                node,
                f"approx_count_distinct with an error of {given}",
                "write a number from 0.0044 to 0.39, or COUNT(DISTINCT …)",
            )
        return () if float(number) == 0.05 else (Literal(float(number), DOUBLE),)

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
        constant = isinstance(part, exp.Var) or (isinstance(part, exp.Literal) and part.is_string)
        name = part.name.upper() if constant else part.sql(dialect="spark")
        if name not in table.DATE_FIELDS:
            date_fields = sorted(table.DATE_FIELDS)
            self._unsupported(
                node,
                f"the field {name}",
                did_you_mean(name, date_fields, f"use {', '.join(date_fields)}"),
            )
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
                self._unsupported(
                    node,
                    "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "RESPECT NULLS",
                    "leave it out, or add FILTER (WHERE value IS NOT NULL)",
                )
            case exp.Collate():
                self._unsupported(node, "COLLATE", "compare lower(a) with lower(b)")
            case exp.Kwarg():
                self._unsupported(node, "an argument by name", "give the arguments in order")
            case exp.Tuple():
                self._unsupported(
                    node, "a list in parentheses", "compare and group one value at a time"
                )
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
        if side not in ("", "BOTH", "LEADING", "TRAILING"):
            self._unsupported(node, f"TRIM({side} …)", "use BOTH, LEADING or TRAILING")
        if characters is None:
            name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim")
            return self._scalar(node, name, (value,))
        if side in ("LEADING", "TRAILING"):
            # Spark's two-argument ltrim and rtrim take the characters first.
            name = "ltrim" if side == "LEADING" else "rtrim"
            return self._scalar(node, name, (self.bind(characters), value))
        return self._scalar(node, "btrim", (value, self.bind(characters)))

    def _mismatch(self, node: exp.Expr, what: str) -> NoReturn:
        refuse("TYPE_MISMATCH", node, what_it_is=what, advice="convert one side with CAST")

    def _unsupported(self, node: exp.Expr, what: str, advice: str | None = None) -> NoReturn:
        refuse(
            "UNSUPPORTED_EXPRESSION",
            node,
            what_it_is=what,
            advice=advice or "compute it before the stream is registered",
        )


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
