"""What means the same in Spark and in DuckDB: types, operators, functions, aggregates.

Each entry was proven by running both engines on generated edge cases; the test of this file does
it again. Here are those that hold for whole types; ``calendars``, ``texts``, ``patterns`` and
``decimals`` have those for which the arguments matter. What is in no table runs on Spark. Meanings
are those of Spark's ANSI mode: where Spark raises an error DuckDB must raise one too, and Spark is
then asked to say it.

Types of a user's expressions are known (see ``type_of``). Expressions that the engine itself
makes are of whole numbers, flags and times, and of stored columns that are only compared for
equality, counted, or brought to their least or greatest; they carry no type.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from headrace.definitions.key_bits import NAME as KEY_BITS
from headrace.definitions.key_bits import for_duckdb
from headrace.definitions.sketches import (
    CELLS,
    duckdb_cells_of_row,
    duckdb_cells_of_rows,
    duckdb_merged_cells,
    duckdb_values_of_cells,
)
from headrace.engine.execution.duckdb import calendars, decimals, patterns, texts
from headrace.engine.execution.duckdb.states import correlation, merged_moments, merged_pairs
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.plan.types import BIGINT, DataType
from headrace.sql.render import type_of

# Types

_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_FRACTIONS = frozenset({"float", "double"})
_NUMBERS = _INTEGERS | _FRACTIONS
#: Types that take part in one operation as the wider of them.
_MIXABLE = _INTEGERS | {"double"}
#: Types whose values both engines order and tell apart in the same way.
_ORDERED = _NUMBERS | {"boolean", "string", "date", "timestamp"}


def duckdb_type(kind: DataType) -> str:
    """DuckDB's name of a type.

    >>> duckdb_type(DataType("decimal(10,2)"))
    'DECIMAL(10,2)'
    """
    if kind.name in _TYPES:
        return _TYPES[kind.name]
    if kind.is_decimal:
        return kind.name.upper().replace(" ", "")
    if kind == CELLS:
        return "STRUCT(cells INTEGER[])"
    if kind.is_struct:
        fields = (f'"{field.name}" {duckdb_type(field.type)}' for field in kind.fields())
        return f"STRUCT({', '.join(fields)})"
    raise Untranslatable(f"the type {kind}")


def same_kind(kind: DataType) -> str:
    """The type under which values that are equal have one hash; integers are one kind."""
    return "BIGINT" if kind.name in _INTEGERS else duckdb_type(kind)


# Operators

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}


def comparison_sign(node: exp.Expr) -> str:
    """The sign of a comparison; empty for what is none."""
    return _COMPARISONS.get(type(node), "")


_LOGIC: dict[type[exp.Expr], str] = {exp.And: "AND", exp.Or: "OR"}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_DIVISIONS: dict[type[exp.Expr], str] = {exp.Mod: "%", exp.IntDiv: "//"}
_BITS: dict[type[exp.Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|"}


def operator(node: exp.Expr) -> str:
    """The sign of a binary operator that means the same for these operands."""
    kind = type(node)
    left, right = type_of(node.this), type_of(node.expression)
    names = {side.name for side in (left, right) if side is not None}
    if kind in _LOGIC:
        return _LOGIC[kind]
    if kind in _COMPARISONS:
        if names <= _MIXABLE or (len(names) == 1 and (names <= _ORDERED or _one_decimal(names))):
            return _COMPARISONS[kind]
        raise Untranslatable(f"a comparison of {_listed(names)}")
    if kind in _ARITHMETIC:
        if names <= _MIXABLE:
            return _ARITHMETIC[kind]
        raise Untranslatable(f"arithmetic of {_listed(names)}")
    if kind in _DIVISIONS and names <= _INTEGERS:
        return _DIVISIONS[kind]
    if kind in _BITS and names <= _INTEGERS and len(names) <= 1:
        return _BITS[kind]
    if kind is exp.DPipe and names == {"string"}:
        return "||"
    raise Untranslatable(f"the operator of `{node.sql(dialect='spark')}`")


def _one_decimal(names: set[str]) -> bool:
    return all(name.startswith("decimal") for name in names)


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))


def division(node: exp.Div) -> str:
    """``/``, where it cannot be by zero: DuckDB makes infinity of what is an error in Spark."""
    divisor = node.expression.unnest()
    names = {kind.name for kind in map(type_of, (node.this, divisor)) if kind is not None}
    never_zero = False
    if isinstance(divisor, exp.Anonymous) and divisor.name.lower() == "nullif":
        never_zero = _is_zero(divisor.expressions[1])
    if isinstance(divisor, exp.Literal) and not divisor.is_string:
        never_zero = float(divisor.this) != 0
    if isinstance(divisor, exp.Cast) and names & _FRACTIONS:
        # A fraction is written down as a text that is cast.
        never_zero = _is_number_but_zero(divisor.this)
    if never_zero and names <= _MIXABLE:
        return "/"
    raise Untranslatable(f"the division `{node.sql(dialect='spark')}`")


def _is_zero(node: exp.Expr) -> bool:
    value = node.unnest()
    while isinstance(value, exp.Cast):
        value = value.this.unnest()
    try:
        return isinstance(value, exp.Literal) and float(value.this) == 0
    except ValueError:
        return False


def _is_number_but_zero(node: exp.Expr) -> bool:
    try:
        return isinstance(node, exp.Literal) and abs(float(node.this)) > 0
    except ValueError:
        return False


# Casts

_SAFE_CASTS = {
    # From each type to those that hold all of its values exactly (or, from whole numbers to
    # fractions, round in the one way there is).
    "boolean": {"boolean"},
    "tinyint": {"smallint", "int", "bigint", "float", "double", "string"},
    "smallint": {"int", "bigint", "float", "double", "string"},
    "int": {"bigint", "double", "string"},
    "bigint": {"double", "string"},
    "float": {"double"},
    "date": {"string", "timestamp"},
    "timestamp": {"date"},
}
_NARROWING = {("bigint", "int"), ("bigint", "smallint"), ("int", "smallint"), ("bigint", "tinyint")}


def cast(node: exp.Cast) -> str:
    """The target of a cast that means the same; an overflow is an error in both engines."""
    written = node.to.sql(dialect="spark").lower()
    target = DataType(written.replace(", ", ",").replace(": ", ":"))
    value = node.this.unnest()
    if isinstance(value, exp.Null):
        return duckdb_type(target)
    if target.name.startswith("struct"):
        raise Untranslatable(f"a cast to {target}")
    source = type_of(value)
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal):
        value = value.this
    if isinstance(value, exp.Literal) and (target.is_numeric or target.name == "date"):
        # A constant that the plan wrote down: digits, or a date.
        return duckdb_type(target)
    if source is None:
        # The engine's own, a sum that is brought to its column's type, say.
        return duckdb_type(target)
    fits = target == source or target.name in _SAFE_CASTS.get(source.name, ())
    if target.is_decimal:
        size = decimals.size_of_operand(value)
        fits = size is not None and decimals.holds(target.decimal_parameters, size)
    if fits or (source.name, target.name) in _NARROWING:
        return duckdb_type(target)
    raise Untranslatable(f"a cast from {source} to {target}")


# Functions

RenderedArguments = list[str]


def _plain(name: str) -> Callable[[RenderedArguments], str]:
    return lambda arguments: f"{name}({', '.join(arguments)})"


def _floor_millis(arguments: RenderedArguments) -> str:
    # DuckDB divides towards zero. A multiple of 1000 that is larger than any time makes the
    # number positive, where that is rounding down.
    return f"((epoch_us({arguments[0]}) + 4611686018427387000) // 1000 - 4611686018427387)"


def _pmod(arguments: RenderedArguments) -> str:
    value, step = arguments
    constant = re.fullmatch(r"CAST\((\d+) AS BIGINT\)", step)
    if constant is not None and int(constant[1]) > 0:
        # A large multiple of the step makes the number positive: one division instead of two.
        return f"(({value} + {2**62 // int(constant[1]) * int(constant[1])}) % {constant[1]})"
    return f"((({value}) % ({step}) + ({step})) % ({step}))"


def _upper_bits(arguments: RenderedArguments) -> str:
    # What a shift by more bits than there are does is another thing in each engine; bigints are
    # cut in two, or in three.
    value, places = arguments
    if places not in ("22", "32", "44"):
        raise Untranslatable(f"a shift by {places}")
    return f"({value} >> {places})"


def _if(arguments: RenderedArguments) -> str:
    condition, then, otherwise = arguments
    return f"CASE WHEN {condition} THEN {then} ELSE {otherwise} END"


def _root(arguments: RenderedArguments) -> str:
    # DuckDB fails where Spark says that it is no number.
    (value,) = arguments
    return f"CASE WHEN {value} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({value}) END"


def _struct(arguments: RenderedArguments) -> str:
    names, values = arguments[::2], arguments[1::2]
    pairs = (f'"{name[1:-1]}" := {value}' for name, value in zip(names, values, strict=True))
    return f"struct_pack({', '.join(pairs)})"


def _average(arguments: RenderedArguments) -> str:
    (value,) = arguments
    different = "DISTINCT " if value.startswith("DISTINCT ") else ""
    return f"avg({different}CAST({value.removeprefix(different)} AS DOUBLE))"


# Each function with the types that its arguments may have (None: whatever the engine handles).
_ANY = None
_FUNCTIONS: dict[str, tuple[frozenset[str] | None, Callable[[RenderedArguments], str]]] = {
    "unix_millis": (frozenset({"timestamp"}), _floor_millis),
    "unix_micros": (frozenset({"timestamp"}), _plain("epoch_us")),
    "timestamp_millis": (_INTEGERS, lambda a: f"make_timestamptz(({a[0]}) * 1000)"),
    "timestamp_micros": (_INTEGERS, _plain("make_timestamptz")),
    "pmod": (frozenset({"bigint"}), _pmod),
    "named_struct": (_ANY, _struct),
    "array": (_ANY, lambda a: f"[{', '.join(a)}]"),
    "explode": (_ANY, _plain("unnest")),
    "coalesce": (_ANY, _plain("coalesce")),
    "nullif": (_ORDERED, _plain("nullif")),
    "if": (_ANY, _if),
    "least": (_INTEGERS | {"string", "date", "timestamp"}, _plain("least")),
    "greatest": (_INTEGERS | {"string", "date", "timestamp"}, _plain("greatest")),
    "abs": (_INTEGERS | {"double"}, _plain("abs")),
    "char_length": (frozenset({"string"}), _plain("length")),
    "length": (frozenset({"string"}), _plain("length")),
    "concat": (frozenset({"string"}), lambda a: f"({' || '.join(a)})"),
    "shiftright": (frozenset({"bigint", "int"}), _upper_bits),
    # Keeps Spark from moving conditions. DuckDB does move them: what then raises is asked of Spark.
    "monotonically_increasing_id": (_ANY, lambda _: "CAST(0 AS BIGINT)"),
    "isnotnull": (_ANY, lambda a: f"({a[0]} IS NOT NULL)"),
    "isnan": (frozenset({"double", "float"}), lambda a: f"coalesce(isnan({a[0]}), false)"),
    "floor": (frozenset({"bigint"}), lambda a: a[0]),
    "sqrt": (frozenset({"double"}), _root),
}

_AGGREGATES: dict[str, tuple[frozenset[str] | None, Callable[[RenderedArguments], str]]] = {
    "count": (_ANY, _plain("count")),
    # DuckDB's own makes NULL of nothing but NULLs.
    "count_if": (_ANY, lambda a: f"count(CASE WHEN {a[0]} THEN 1 END)"),
    "sum": (_NUMBERS, _plain("sum")),
    "min": (_ORDERED, _plain("min")),
    "max": (_ORDERED, _plain("max")),
    "bool_and": (_ANY, _plain("bool_and")),
    "every": (_ANY, _plain("bool_and")),
    "bool_or": (_ANY, _plain("bool_or")),
    "some": (_ANY, _plain("bool_or")),
    "any": (_ANY, _plain("bool_or")),
    "bit_and": (_INTEGERS, _plain("bit_and")),
    "bit_or": (_INTEGERS, _plain("bit_or")),
    "bit_xor": (_INTEGERS, _plain("bit_xor")),
    "avg": (_NUMBERS, _average),
    "mean": (_NUMBERS, _average),
    "median": (_INTEGERS, lambda a: f"quantile_cont({a[0]}, 0.5)"),
    "approx_count_distinct": (_ANY, _plain("approx_count_distinct")),
    **{name: (frozenset({"double"}), _plain(name)) for name in ("var_pop", "covar_pop")},
    # Those of DuckDB without "null" pass over rows whose value is NULL.
    "max_by": (_ORDERED, _plain("arg_max_null")),
    "min_by": (_ORDERED, _plain("arg_min_null")),
}

#: Aggregates that mean the same of decimals, too.
_OF_DECIMALS = frozenset({"sum", "min", "max", "min_by", "max_by"})

# What only the engine's own definitions have: states, and what is estimated.
_STATES: dict[str, tuple[frozenset[str] | None, Callable[[RenderedArguments], str]]] = {
    KEY_BITS: (_ANY, for_duckdb),
    "merged_moments": (_ANY, merged_moments),
    "merged_pairs": (_ANY, merged_pairs),
    "correlation": (_ANY, correlation),
    "whole_of_halves": (_ANY, lambda a: f"(CAST({a[0]} AS HUGEINT) * 4294967296 + {a[1]})"),
    "upper_half": (_ANY, lambda a: f"(({a[0]}) // {a[1]})"),
    "lower_half": (_ANY, lambda a: f"(({a[0]}) % {a[1]})"),
    "cells_of_rows": (_ANY, duckdb_cells_of_rows),
    "cells_of_row": (_ANY, duckdb_cells_of_row),
    "merged_cells": (_ANY, duckdb_merged_cells),
    "values_of_cells": (_ANY, duckdb_values_of_cells),
}
_OF_MANY_ROWS = frozenset(
    {KEY_BITS, "merged_moments", "merged_pairs", "cells_of_rows", "merged_cells"}
)
_TABLE = _FUNCTIONS | _AGGREGATES | _STATES

#: Functions whose translation depends on their arguments: their types, or constants among them.
_BY_ARGUMENTS = calendars.TRANSLATIONS | texts.TRANSLATIONS | patterns.TRANSLATIONS
_SYNONYMS = {"nvl": "coalesce", "ifnull": "coalesce", "len": "length", "character_length": "length"}


def is_aggregate(call: exp.Expr) -> bool:
    """Whether a call makes one value of many rows."""
    if isinstance(call, exp.Anonymous):
        name = call.name.lower()
        return name in _AGGREGATES or name in _OF_MANY_ROWS
    return isinstance(call, exp.Count)


def function(node: exp.Anonymous, arguments: RenderedArguments) -> str:
    """A call that means the same."""
    name = _SYNONYMS.get(node.name.lower(), node.name.lower())
    if name in _BY_ARGUMENTS:
        return _BY_ARGUMENTS[name](node.expressions, arguments)
    if name not in _TABLE:
        raise Untranslatable(f"the function {name}")
    allowed, text = _TABLE[name]
    for argument in node.expressions:
        kind = _argument_type(argument)
        if kind is None:
            continue
        duckdb_type(kind)
        decimal = kind.is_decimal and name in _OF_DECIMALS
        if allowed is not None and kind.name not in allowed and not decimal:
            raise Untranslatable(f"{name} of {kind}")
    if name == "shiftright" and type_of(node.expressions[0]) not in (None, BIGINT):
        raise Untranslatable("a shift of a number that is no bigint")
    if name in ("avg", "mean") and isinstance(node.expressions[0], exp.Distinct):
        kind = _argument_type(node.expressions[0])
        if kind is None or kind == BIGINT:
            # Different whole numbers may be one double.
            raise Untranslatable("the average of different whole numbers beyond those of doubles")
    if name in ("coalesce", "least", "greatest", "nullif"):
        arguments = of_one_type(node.expressions, arguments)
    if name == "if":
        arguments = [arguments[0], *of_one_type(node.expressions[1:], arguments[1:])]
    return text(arguments)


def of_one_type(values: list[exp.Expr], rendered: RenderedArguments) -> RenderedArguments:
    """The values among which one is chosen, at the type that all of them have in the end."""
    kinds = {kind for kind in map(type_of, values) if kind is not None and kind.name != "void"}
    names = {kind.name for kind in kinds}
    if len(names) <= 1 or names <= _MIXABLE:
        return rendered
    sizes = [decimals.size_of_operand(v) for v in values if type_of(v) in kinds]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        raise Untranslatable(f"a choice among {_listed(names)}")
    scale = max(size[1] for size in known)
    digits = max(size[0] - size[1] for size in known) + scale
    if digits > decimals.MOST_DIGITS:
        raise Untranslatable(f"a choice among {_listed(names)}")
    return [f"CAST({text} AS DECIMAL({digits},{scale}))" for text in rendered]


def _argument_type(argument: exp.Expr) -> DataType | None:
    if isinstance(argument, exp.Distinct):
        return type_of(argument.expressions[0])
    return type_of(argument)


def like(node: exp.Like) -> str:
    """A pattern that holds no escape: ``\\\\`` is one in Spark and nothing in DuckDB."""
    pattern = node.expression
    if isinstance(pattern, exp.Literal) and re.search(r"\\", pattern.this) is None:
        return "LIKE"
    raise Untranslatable("LIKE with an escape, or with a pattern that is no constant")
