"""Which shapes of expressions Spark reads as plans do: of thousands of queries few are new.

A shape is what an expression is made of, without what Spark's analyzer does not look at: what the
columns are called, and the values of constants where these decide no type. A function that the
table of functions does not know may be the user's own and change from query to query; what calls
one has no shape.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence

from headrace.plan.expressions import (
    COMPARISONS,
    OPERATORS,
    AggregateCall,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
)

#: Sums of these have a type of their own whatever the constants in them; those of decimals do not.
_FIXED = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "boolean"})
_SUMS = frozenset({"+", "-", "*"})
#: More shapes than this are no longer few.
_MOST = 100_000


class AgreedShapes:
    """The shapes of what stands together in an operator that Spark has agreed with.

    ``functions`` are those that the table of functions knows.
    """

    def __init__(self, functions: Iterable[str] = ()) -> None:
        self._functions = OPERATORS.keys() | functions
        self._shapes: set[Hashable] = set()

    def has(self, expressions: Sequence[Expr]) -> bool:
        shape = shape_of(expressions, self._functions)
        return shape is not None and shape in self._shapes

    def note(self, expressions: Sequence[Expr]) -> None:
        """Spark reads these as the plan does."""
        shape = shape_of(expressions, self._functions)
        if shape is not None and len(self._shapes) < _MOST:
            self._shapes.add(shape)


def shape_of(expressions: Sequence[Expr], functions: Collection[str]) -> Hashable | None:
    """Equal for expressions of which Spark says the same; None where that cannot be known."""
    places: dict[str, int] = {}
    shapes = []
    for expr in expressions:
        if not all(_is_known(part, functions) for part in expr.walk()):
            return None
        shapes.append(_shape(expr, places, False))
    return tuple(shapes)


def _shape(expr: Expr, places: dict[str, int], any_value: bool) -> Hashable:
    kind = expr.type.name
    match expr:
        case Column():
            return "column", kind, places.setdefault(expr.name, len(places))
        case Literal():
            return ("some", kind) if any_value else ("value", kind, repr(expr.value))
        case Call():
            free = expr.function in COMPARISONS or (expr.function in _SUMS and kind in _FIXED)
            own: Hashable = expr.function
        case AggregateCall():
            own, free = (expr.function, expr.distinct, expr.filter is not None), False
        case Cast():
            own, free = ("cast", expr.safe), False
        case _:
            own, free = type(expr).__name__, False
    return own, kind, *(_shape(child, places, free) for child in expr.children)


def _is_known(expr: Expr, functions: Collection[str]) -> bool:
    match expr:
        case Call() | AggregateCall():
            return expr.function in functions
        case Column() | Literal() | Cast():
            return True
        case _:
            return False
