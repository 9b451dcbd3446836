"""Arithmetic of decimals that is exact in both engines.

Spark says how many digits a sum or a product of decimals has. Where that is enough for every value
(it is not if 38 digits are not), the result is exact, and DuckDB's is the same.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.plan.types import DataType
from headrace.sql.render import type_of

#: Digits of whole numbers, as Spark counts them.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
MOST_DIGITS = 38
_IN_64_BITS = 18

_Text = Callable[[exp.Expr], str]


def size_of(kind: DataType | None) -> tuple[int, int] | None:
    """Digits in all and after the point, of a decimal or a whole number."""
    if kind is None:
        return None
    return kind.decimal_parameters if kind.is_decimal else whole_size(kind)


def whole_size(kind: DataType) -> tuple[int, int] | None:
    return (_DIGITS[kind.name], 0) if kind.name in _DIGITS else None


def holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    """Whether a decimal of the first size holds every value of the second."""
    return outer[1] >= inner[1] and outer[0] - outer[1] >= inner[0] - inner[1]


def is_of_decimals(node: exp.Expr) -> bool:
    kinds = [type_of(side) for side in (node.this, node.expression)]
    return any(kind is not None and kind.is_decimal for kind in kinds)


def are_two_sizes(node: exp.Expr) -> bool:
    """Whether a decimal is compared with one of another size, or with a whole number."""
    return is_of_decimals(node) and type_of(node.this) != type_of(node.expression)


def arithmetic(node: exp.Add | exp.Sub | exp.Mul, text: _Text) -> str:
    """A sum, a difference or a product."""
    kind = type_of(node)
    sizes = _sizes(node)
    if kind is None or not kind.is_decimal:
        raise Untranslatable(f"a decimal in {kind}")
    total, (left, right) = kind.decimal_parameters, sizes
    if isinstance(node, exp.Mul):
        needed = left[0] + right[0], left[1] + right[1]
        # DuckDB multiplies two of up to 18 digits in 64 bits, whatever comes out.
        wide = max(left[0], _IN_64_BITS + 1) if needed[0] > _IN_64_BITS else left[0], left[1]
        sign, operands = "*", [_cast(text(node.this), wide), _cast(text(node.expression), right)]
    else:
        scale = max(left[1], right[1])
        needed = max(left[0] - left[1], right[0] - right[1]) + scale + 1, scale
        sign = "-" if isinstance(node, exp.Sub) else "+"
        operands = [_cast(text(side), needed) for side in (node.this, node.expression)]
    if needed[0] > MOST_DIGITS or total[1] != needed[1] or total[0] < needed[0]:
        raise Untranslatable(f"arithmetic of decimals of more than {MOST_DIGITS} digits")
    return _cast(f"{operands[0]} {sign} {operands[1]}", total)


def comparison(node: exp.Expr, sign: str, text: _Text) -> str:
    """Two decimals of different sizes, or a decimal and a whole number."""
    left, right = _sizes(node)
    scale = max(left[1], right[1])
    common = max(left[0] - left[1], right[0] - right[1]) + scale, scale
    if common[0] > MOST_DIGITS:
        raise Untranslatable(f"a comparison of decimals of more than {MOST_DIGITS} digits")
    return f"{_cast(text(node.this), common)} {sign} {_cast(text(node.expression), common)}"


def _sizes(node: exp.Expr) -> tuple[tuple[int, int], tuple[int, int]]:
    left, right = size_of_operand(node.this), size_of_operand(node.expression)
    if left is None or right is None:
        kinds = " and ".join(str(type_of(side)) for side in (node.this, node.expression))
        raise Untranslatable(f"{kinds} together")
    return left, right


def size_of_operand(node: exp.Expr) -> tuple[int, int] | None:
    """A whole number that the plan wrote down has the digits that it has."""
    value = node.unnest()
    if isinstance(value, exp.Neg):
        value = value.this.unnest()
    if isinstance(value, exp.Literal) and not value.is_string:
        return len(str(value.this)), 0
    return size_of(type_of(node))


def _cast(text: str, size: tuple[int, int]) -> str:
    return f"CAST({text} AS DECIMAL({size[0]},{size[1]}))"
