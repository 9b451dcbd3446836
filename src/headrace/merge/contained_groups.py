"""Groups that are among those of another aggregate, read there through a filter on their keys.

``SUM(v) … WHERE region = 'east' GROUP BY region`` has the groups of ``SUM(v) … GROUP BY region``
whose region is the east: a condition on keys keeps all rows of a group or none. So a thousand
queries that each look at keys of their own read one aggregate of all, if there is one.

A condition on anything else changes what is in the groups; such aggregates are folded into one
arrangement when they run, and not here.
"""

from __future__ import annotations

from collections.abc import Hashable

from headrace.merge.containment import (
    Container,
    Meanings,
    Names,
    filters_below,
    implication,
    read_through,
    single_branches,
)
from headrace.merge.equality import Equality
from headrace.merge.signature import SelectBlock
from headrace.merge.signer import Signer
from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import AggregateCall
from headrace.plan.nodes import Aggregate, Node
from headrace.plan.types import DataType

#: Types whose values are equal only if they are the same: a key of another type stands for values
#: that a condition might tell apart, such as 0.0 and -0.0.
_PLAIN_KEYS = frozenset(
    {"tinyint", "smallint", "int", "bigint", "string", "boolean", "date", "timestamp"}
)
#: Aggregates that cannot overflow, of whatever they are; and sums, of what is not wide enough to.
_NEVER_OVERFLOW = frozenset({"count", "min", "max", "bool_or", "bool_and", "any", "every", "some"})
_SUMMED_SAFELY = frozenset({"tinyint", "smallint", "int", "float", "double"})


def grouping_shape(node: Aggregate, meanings: Meanings, signer: Signer) -> Hashable | None:
    """What aggregates must agree on for one to hold groups of the other; None if none can."""
    below = meanings[id(node.input)]
    if node.from_sets or node.sharing or len(below.branches) != 1:
        return None
    (branch,) = below.branches
    return (
        "groups",
        branch.leaves,
        tuple(sorted({signer.terms.term(key.expr, branch.columns) for key in node.keys})),
        branch.columns[node.time.name],
        tuple(sorted(map(repr, node.windows))),
        tuple((branch.columns[w.time.name], repr(w.window)) for w in node.also),
        "" if node.early == "auto" else node.early,
    )


def groups_within(
    node: Aggregate, meanings: Meanings, equality: Equality, container: Container
) -> Node | None:
    """An aggregate as groups of a wider one of the same shape, or None where it is not known."""
    theirs, signer = container.node, equality.signer
    assert isinstance(theirs, Aggregate)
    below, below_theirs = meanings[id(node.input)], container.meanings[id(theirs.input)]
    branches = single_branches(equality, below, below_theirs)
    # It meets rows that this query's filter would have kept away from it.
    if branches is None or not _is_safe(theirs, signer.terms.unbounded):
        return None
    beyond = implication(equality, branches[0].predicate, branches[1].predicate)
    if beyond is None:
        return None
    keys: Names = {
        (signer.terms.term(key.expr, branches[1].columns), key.expr.type): key.name
        for key in theirs.keys
        if key.expr.type.name in _PLAIN_KEYS
    }
    residual = beyond.residual(filters_below(node.input, meanings), keys)
    if residual is None:
        return None
    names: Names = {
        (what, kind): name for name, what, kind in _columns(theirs, branches[1], signer)
    }
    return read_through(container, residual, _columns(node, branches[0], signer), names)


def _columns(
    node: Aggregate, below: SelectBlock, signer: Signer
) -> list[tuple[str, object, DataType]]:
    """The columns of an aggregate: their names, what they are of the groups, and their types."""
    what: dict[str, object] = {
        key.name: ("key", signer.terms.term(key.expr, below.columns)) for key in node.keys
    }
    for named in node.aggregates:
        assert isinstance(named.expr, AggregateCall)
        what[named.name] = signer.aggregates.unsettled(named.expr, node, below)
    # Beside these there are the window and its name.
    return [(f.name, what.get(f.name, f.name), f.type) for f in node.schema]


def _is_safe(node: Aggregate, unbounded: bool) -> bool:
    """Whether it raises for no rows that it might meet."""
    for key in node.keys:
        if can_raise(key.expr):
            return False
    for named in node.aggregates:
        call = named.expr
        assert isinstance(call, AggregateCall)
        if any(map(can_raise, call.children)) or not (_never_overflows(call) or unbounded):
            return False
    return True


def _never_overflows(call: AggregateCall) -> bool:
    if call.function in ("sum", "avg"):
        return all(argument.type.name in _SUMMED_SAFELY for argument in call.arguments)
    return call.function in _NEVER_OVERFLOW
