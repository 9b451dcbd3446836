"""What aggregates compute, in one spelling, and which keys make the groups.

    count_if(c)                    →   count(*) FILTER (WHERE c)
    count(x)                       →   count(*) FILTER (WHERE x IS NOT NULL)
    sum(CASE WHEN c THEN x END)    →   sum(x) FILTER (WHERE c)
    sum(if(c, 1, 0))               →   count(*) FILTER (WHERE c)
    sum(d) / count(d)              →   avg(d), of doubles

An aggregate that passes over NULL is filtered by its argument's being there, and a filter that all
rows of the block pass says nothing. So the same is said once, however it is divided between CASE,
FILTER and WHERE.

Paper: Query Merging, Section 4.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.merge.conditions import Predicate
from headrace.merge.signature import SelectBlock, Signature
from headrace.merge.spelling import spelt
from headrace.merge.terms import Terms, is_plain
from headrace.plan.expressions import AggregateCall, Call, Expr, Literal, conjunction
from headrace.plan.nodes import Aggregate
from headrace.plan.types import BIGINT, BOOLEAN, DataType
from headrace.plan.windows import Trailing

if TYPE_CHECKING:
    from headrace.merge.signer import Signer

#: Aggregates of one argument that pass over rows where it is NULL.
_PASS_OVER_NULL = frozenset(
    {
        *(
            "sum",
            "avg",
            "min",
            "max",
            "count",
            "bool_and",
            "bool_or",
            "bit_and",
            "bit_or",
            "bit_xor",
        ),
        *("stddev", "stddev_pop", "variance", "var_pop", "skewness", "kurtosis", "median", "mode"),
        *("collect_list", "collect_set", "approx_count_distinct"),
    }
)

#: A function, its type, DISTINCT, its arguments with their types, and its filter for each branch.
AggregateForm = tuple[object, ...]


class AggregateForms:
    """Says what aggregates over a relation compute."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def form(self, call: AggregateCall, node: Aggregate, below: Signature) -> AggregateForm:
        """What a column of an aggregate is, of its groups."""
        call = spelt_aggregate(call, node)
        arguments = tuple(
            (argument.type.name, self._signer.meaning(argument, below))
            for argument in call.arguments
        )
        chosen = tuple(self._chosen(call, branch) for branch in below.branches)
        return (call.function, call.type.name, call.distinct, arguments, chosen)

    def unsettled(self, call: AggregateCall, node: Aggregate, branch: SelectBlock) -> AggregateForm:
        """The same whatever the block says of its rows, to compare with another block's."""
        call = spelt_aggregate(call, node)
        terms = self._signer.terms
        arguments = tuple(
            (argument.type.name, terms.term(argument, branch.columns))
            for argument in call.arguments
        )
        where = self._filter(call, branch)
        return (
            *(call.function, call.type.name, call.distinct, arguments),
            self._signer.conditions.number(where),
        )

    def _chosen(self, call: AggregateCall, branch: SelectBlock) -> int:
        """The number of what a row of the block must fulfil to be taken in."""
        signer = self._signer
        conditions = signer.conditions
        where = self._filter(call, branch)
        if not _is_calm(where) or not _is_calm(signer.normal(branch).predicate):
            return conditions.number(where)
        settled = (
            p for part in _parts(where) for p in conditions.true_parts(signer.settled(part, branch))
        )
        simplified = conditions.simplified(
            frozenset(_parts(signer.normal(signer.settle(branch)).predicate))
        )
        beyond = [
            part
            for part in conditions.simplified(frozenset(settled))
            if part not in simplified and conditions.simplified(simplified | {part}) != simplified
        ]
        return conditions.number(conditions.both((), beyond))

    def _filter(self, call: AggregateCall, branch: SelectBlock) -> Predicate:
        conditions, terms = self._signer.conditions, self._signer.terms
        where: Predicate = ()
        if call.filter is not None:
            where = conditions.where(where, call.filter, branch.columns)
        if call.function in _PASS_OVER_NULL and len(call.arguments) == 1:
            argument = terms.term(call.arguments[0], branch.columns)
            if not terms.raises(argument):
                there = conditions.null_test(argument, wants_null=False)
                where = conditions.both(where, conditions.true_parts(there))
        return where


def spelt_aggregate(call: AggregateCall, node: Aggregate) -> AggregateCall:
    """The call with its conditions in its filter."""
    if call.function == "count_if":
        return _counting(call, call.arguments[0])
    if len(call.arguments) == 1 and not call.distinct:
        (argument,) = call.arguments
        argument = spelt(argument)
        if _counts_ones(call, argument, node):
            assert isinstance(argument, Call)
            return _counting(call, argument.arguments[0])
        narrowed = _of_case(call, argument)
        if narrowed is not None:
            return spelt_aggregate(narrowed, node)
    if call.function == "count" and call.arguments and not call.distinct:
        tests: list[Expr] = [Call("isnotnull", (a,), BOOLEAN) for a in call.arguments]
        return _counting(call, *tests)
    return call


def _counting(call: AggregateCall, *conditions: Expr) -> AggregateCall:
    """``count(*)`` of the rows that fulfil these, and what the call asks already."""
    given = [] if call.filter is None else [call.filter]
    return AggregateCall("count", (), BIGINT, filter=conjunction([*given, *conditions]))


def _of_case(call: AggregateCall, argument: Expr) -> AggregateCall | None:
    """``f(CASE WHEN c THEN x END)`` as ``f(x) FILTER (WHERE c)``."""
    if call.function not in _PASS_OVER_NULL:
        return None
    if not isinstance(argument, Call) or argument.function != "case":
        return None
    if len(argument.arguments) != 3:
        return None
    condition, value, default = argument.arguments
    if not isinstance(default, Literal) or default.value is not None:
        return None
    if value.type != argument.type:
        return None
    given = [] if call.filter is None else [call.filter]
    return replace(call, arguments=(value,), filter=conjunction([*given, condition]))


def _counts_ones(call: AggregateCall, argument: Expr, node: Aggregate) -> bool:
    """Whether it is the sum of a one for some rows and a zero for all others.

    A group has rows, so there is a sum; but a filter may keep them all away, and a trailing window
    may have lost them.
    """
    if call.function != "sum" or call.filter is not None or call.type != BIGINT:
        return False
    if any(isinstance(window, Trailing) for window in node.windows) or node.also:
        return False
    if not isinstance(argument, Call) or argument.function != "case":
        return False
    values = [a.value if isinstance(a, Literal) else None for a in argument.arguments[1:]]
    return len(values) == 2 and values == [1, 0] and argument.type.is_integer


def average_of(total: object, count: object) -> AggregateForm | None:
    """The average of what one column adds up and the other counts, where that is the same.

    Spark's average of doubles is their sum by their number. Of whole numbers it is a sum of
    doubles, and of decimals it has digits of its own.
    """
    match total, count:
        case (
            ("sum", "double", False, ((kind, argument),) as arguments, chosen),
            ("count", "bigint", False, (), counted),
        ) if kind == "double" and chosen == counted and argument is not None:
            return ("avg", "double", False, arguments, chosen)
    return None


def independent_keys(
    terms: Terms, keys: Mapping[str, int], kinds: Mapping[str, DataType]
) -> frozenset[int]:
    """The meanings of keys that make the groups: not of constants, nor of what is computed of other
    keys."""
    columns = {
        meaning
        for name, meaning in keys.items()
        if terms.forms[meaning][0] == "var" and is_plain(kinds[name])
    }
    return frozenset(
        meaning
        for meaning in keys.values()
        if meaning in columns or terms.raises(meaning) or not terms.inside(meaning) <= columns
    )


def _is_calm(predicate: Predicate) -> bool:
    """Whether nothing in it raises."""
    return all(isinstance(segment, frozenset) for segment in predicate)


def _parts(predicate: Predicate) -> list[int]:
    return [part for segment in predicate if isinstance(segment, frozenset) for part in segment]
