"""Folding is exact for TRUE, FALSE and NULL, for every assignment of every generated condition."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.optimizer.rules.fold_constants import folded
from headrace.plan.expressions import Call, Column, Expr, Literal
from headrace.plan.types import BOOLEAN, INT

VALUES = (True, False, None)
COLUMNS = [Column(name, BOOLEAN) for name in "pq"]
NUMBERS: list[Expr] = [Column("n", INT), Literal(1, INT), Literal(2, INT), Literal(None, INT)]

leaves: st.SearchStrategy[Expr] = st.one_of(
    st.sampled_from(COLUMNS),
    st.sampled_from(VALUES).map(lambda value: Literal(value, BOOLEAN)),
    st.tuples(
        st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>", "in"]),
        st.sampled_from(NUMBERS),
        st.sampled_from(NUMBERS),
    ).map(lambda t: Call(t[0], t[1:], BOOLEAN)),
)


def above(below: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def call(function: str, count: int) -> st.SearchStrategy[Expr]:
        return st.tuples(*[below] * count).map(lambda args: Call(function, args, BOOLEAN))

    return st.one_of(
        call("not", 1),
        call("and", 2),
        call("or", 2),
        call("isnull", 1),
        call("case", 3),
        call("case", 5),
    )


def value(expr: Expr, row: dict[str, object]) -> object:
    """What Spark says: SQL's three-valued logic."""
    match expr:
        case Column(name=name):
            return row[name]
        case Literal(value=constant):
            return constant
        case Call(function="case", arguments=arguments):
            for condition, result in zip(arguments[:-1:2], arguments[1::2], strict=True):
                if value(condition, row) is True:
                    return value(result, row)
            return value(arguments[-1], row)
        case Call(function=function, arguments=arguments):
            return operation(function, [value(a, row) for a in arguments])
        case _:
            raise AssertionError(expr)


def operation(function: str, values: list[object]) -> object:
    first, *rest = values
    match function:
        case "and":
            return False if False in values else None if None in values else True
        case "or":
            return True if True in values else None if None in values else False
        case "not":
            return None if first is None else not first
        case "isnull":
            return first is None
        case "<=>":
            return first == rest[0]
        case _ if None in values:
            return None
        case "=" | "in":
            return first == rest[0]
        case "!=":
            return first != rest[0]
        case "<":
            return first < rest[0]  # type: ignore[operator]
        case "<=":
            return first <= rest[0]  # type: ignore[operator]
        case ">":
            return first > rest[0]  # type: ignore[operator]
        case ">=":
            return first >= rest[0]  # type: ignore[operator]
        case _:
            raise AssertionError(function)


@settings(max_examples=600)
@given(st.recursive(leaves, above, max_leaves=8))
def test_folding_changes_no_value(expr: Expr) -> None:
    after = folded(expr)
    for p, q, n in itertools.product(VALUES, VALUES, (0, 1, 2, None)):
        row = {"p": p, "q": q, "n": n}
        assert value(after, row) is value(expr, row), (str(expr), str(after), row)
    assert folded(after) == after
