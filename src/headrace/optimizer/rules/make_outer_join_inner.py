"""An outer join whose rows without a partner are all left out by the filter above is inner.

    Filter b.v > 3 (Join left a, b)   →   Filter b.v > 3 (Join inner a, b)

A condition **rejects** the NULLs of a side if it is not true where all columns of that side are
NULL: a comparison, a pattern or ``IN`` of something that is NULL with them, or ``IS NOT NULL``.
Of a full join it may leave a left or a right one.

Pairs come out in the same epochs either way. A join that is inner may belong to a tree of joins,
though, which has one watermark for all of its streams, and then other rows would be late. So the
join stays outer where another inner join of streams stands directly above it or below it.

The idea is that of Galindo-Legaria and Rosenthal, Outerjoin Simplification and Reordering for Query
Optimization, TODS 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.optimizer.rule import Rule
from headrace.plan.expressions import COMPARISONS, Call, Cast, Column, Expr, conjuncts
from headrace.plan.join_graph import belongs, has_table
from headrace.plan.nodes import Filter, Join, JoinKind, Node, Project

_NULL_OF_NULL = frozenset({"+", "-", "*", "/", "%", "div", "negative", "abs", "field", "upper"})
_NULL_OF_NULL |= {"lower", "length", "trim", "window_time", "substring"}
_TESTS = (COMPARISONS - {"<=>"}) | {"like", "ilike", "rlike"}


def make_outer_join_inner(plan: Node) -> Node | None:
    done: dict[tuple[Node, bool], Node] = {}

    def visit(node: Node, in_tree: bool) -> Node:
        """``in_tree`` says that an inner join of streams stands above."""
        if (node, in_tree) not in done:
            done[node, in_tree] = _simplified(_with_inputs(node, in_tree, visit), in_tree)
        return done[node, in_tree]

    after = visit(plan, False)
    return after if after != plan else None


def _with_inputs(node: Node, in_tree: bool, visit: Callable[[Node, bool], Node]) -> Node:
    if isinstance(node, Join):
        in_tree = node.kind is JoinKind.INNER and not has_table(node)
    elif not isinstance(node, Filter | Project):
        in_tree = False
    inputs = tuple(visit(child, in_tree) for child in node.inputs)
    return node if inputs == node.inputs else node.with_inputs(inputs)


def _simplified(node: Node, in_tree: bool) -> Node:
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return node
    join, parts = node.input, conjuncts(node.predicate)
    keeps_left = join.kind.keeps_left and not _any_rejects(parts, join.right_schema.names)
    keeps_right = join.kind.keeps_right and not _any_rejects(parts, join.left_schema.names)
    kind = _KINDS[keeps_left, keeps_right]
    simpler = replace(join, kind=kind)
    if kind is join.kind or (kind is JoinKind.INNER and _would_be_in_tree(simpler, in_tree)):
        return node
    return Filter(simpler, node.predicate)


_KINDS = {
    (False, False): JoinKind.INNER,
    (True, False): JoinKind.LEFT,
    (False, True): JoinKind.RIGHT,
    (True, True): JoinKind.FULL,
}


def _would_be_in_tree(join: Join, in_tree: bool) -> bool:
    """Whether as an inner join it would share its watermark with others."""
    return not has_table(join) and (in_tree or any(belongs(join, side) for side in join.inputs))


def _any_rejects(parts: tuple[Expr, ...] | list[Expr], names: tuple[str, ...]) -> bool:
    return any(_rejects(part, frozenset(names)) for part in parts)


def _rejects(condition: Expr, names: frozenset[str]) -> bool:
    """Whether a condition is not true where the columns of these names are NULL."""
    match condition:
        case Call(function="and", arguments=parts):
            return any(_rejects(part, names) for part in parts)
        case Call(function="or", arguments=parts):
            return all(_rejects(part, names) for part in parts)
        case Call(function="not", arguments=(Call(function="isnull", arguments=(value,)),)):
            return _is_null(value, names)
        case Call(function="not", arguments=(Call() as test,)):
            return _is_null(test, names)
        case _:
            return _is_null(condition, names)


def _is_null(expr: Expr, names: frozenset[str]) -> bool:
    """Whether an expression is NULL where the columns of these names are."""
    match expr:
        case Column(name=name):
            return name in names
        case Cast(argument=argument):
            return _is_null(argument, names)
        case Call(function="in", arguments=arguments):
            return _is_null(arguments[0], names)
        case Call(function=function, arguments=arguments):
            strict = function in _NULL_OF_NULL or function in _TESTS
            return strict and any(_is_null(argument, names) for argument in arguments)
        case _:
            return False


RULE = Rule("make_outer_join_inner", make_outer_join_inner, on_whole_plan=True)
