"""What an early aggregation below a join is made of: Rules 1 and 2 of the paper (Section 5).

Rule 1: it groups by the query's grouping attributes that its input has, and by what joins and
conditions read of it. Rule 2: it computes the query's aggregates of its input, and counts its rows
where an aggregate of another input, or a count of the joined rows, is multiplied by them.

Further than the paper: a grouping *expression* over one input is one attribute, however many
columns it reads; and an input that is not aggregated early has the same columns, one row at a time.

A set is made of rows that may meet nobody, so nothing in it may raise. What can raise is computed
where its guard holds (see ``guards``). The other rows are told apart by the columns that it reads,
as they are, and it is computed of those above the join. Where no guard is known, that is so of all
rows. Either way it is computed for exactly the joined rows, and raises if it does for one of them.
An aggregate over several inputs is made of factors where it has some (see ``factors``), and is else
computed of columns that tell all rows apart, too.

Paper: Early Aggregation, Section 5, Rule 1, Rule 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.optimizer.early.aggregates import SCALED
from headrace.optimizer.early.factors import Factored, factored
from headrace.optimizer.early.guards import guard, may_fail
from headrace.optimizer.early.shape import AggregationJoin
from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Literal, Named, conjunction
from headrace.plan.substitute import by_position, substituted
from headrace.plan.types import BOOLEAN


@dataclass(frozen=True)
class EarlySet:
    """The columns of one input's set.

    ``groups`` are its grouping attributes, named as above the join and computed from the input's
    own columns. ``measures`` are positions of the query's aggregates that it computes, with the
    call over its own columns; ``factors`` what it computes of its factor of others, with what that
    is. ``counts`` says that the number of its rows is needed. ``sound`` is the group that says
    whether what can raise is computed, where something can. In the other groups the aggregates at
    the positions in ``guarded`` are NULL, and the groups named in ``unsound`` are not: they are
    columns that tell such rows apart.
    """

    groups: tuple[Named, ...]
    measures: tuple[tuple[int, AggregateCall], ...]
    counts: bool
    factors: tuple[tuple[int, str, AggregateCall], ...] = ()
    sound: Column | None = None
    guarded: frozenset[int] = frozenset()
    unsound: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EarlySets:
    """The sets of all inputs, and the groups in terms of them; ``factored`` are the aggregates over
    several inputs that are made of factors, by position."""

    inputs: tuple[EarlySet, ...]
    keys: tuple[Named, ...]
    factored: Mapping[int, Factored]


def early_sets(shape: AggregationJoin) -> EarlySets:
    """What every input's set has to hold."""
    guards = [_guard_of_input(shape, index) for index in range(len(shape.graph.leaves))]
    keys, computed = _grouping_attributes(shape, guards)
    split = _factored(shape)
    inputs = []
    for index, (leaf, own_guard) in enumerate(zip(shape.graph.leaves, guards, strict=True)):
        own = by_position(leaf.schema, leaf.node.schema)
        condition = None if own_guard is None else substituted(own_guard, own)
        names = sorted(_columns_needed(shape, keys, split, index))
        groups = [Named(name, own[name]) for name in names]
        groups += [
            Named(n, substituted(e, own)) for n, (owner, e) in computed.items() if owner == index
        ]
        sound, unsound = None, _columns_guarded(shape, index).difference(names)
        if condition is not None:
            sound = sound_column(index)
            groups.append(Named(sound.name, condition))
            groups += [Named(name, _unless(condition, own[name])) for name in sorted(unsound)]
        measures, guarded = [], set()
        for position, named in enumerate(shape.aggregates):
            if owner_of(shape, named.expr) == index:
                call = substituted(named.expr, own)
                if condition is not None and may_fail(call):
                    call = _where(condition, call)
                    guarded.add(position)
                assert isinstance(call, AggregateCall)
                measures.append((position, call))
        factors = [
            (position, what, call)
            for position, parts in split.items()
            for what, call in _own_factor(parts, index, own).items()
        ]
        inputs.append(
            EarlySet(
                tuple(groups),
                tuple(measures),
                _counts(shape, index, guarded, split),
                tuple(factors),
                sound,
                frozenset(guarded),
                frozenset(unsound),
            )
        )
    return EarlySets(tuple(inputs), keys, split)


def _factored(shape: AggregationJoin) -> dict[int, Factored]:
    """The aggregates over several inputs that are made of factors of each."""
    split: dict[int, Factored] = {}
    for position, named in enumerate(shape.aggregates):
        assert isinstance(named.expr, AggregateCall)
        parts = factored(named.expr, shape.graph.owners)
        if parts is not None:
            split[position] = parts
    return split


def _own_factor(parts: Factored, index: int, own: Mapping[str, Expr]) -> dict[str, AggregateCall]:
    """What an input's set computes of its factor of an aggregate, if it has one."""
    if index not in parts.inputs:
        return {}
    return parts.calls(substituted(parts.factors[parts.inputs.index(index)], own))


def owner_of(shape: AggregationJoin, expr: Expr) -> int | None:
    """The input whose set holds an expression; None for a count of joined rows, and where it is
    over several inputs or cannot be guarded, so that its columns stay as they are."""
    owners = shape.graph.owners(expr)
    if len(owners) != 1 or stays_above(expr):
        return None
    return next(iter(owners))


def stays_above(expr: Expr) -> bool:
    """Whether it can raise and nothing is known to tell the rows for which it does."""
    return may_fail(expr) and guard(expr) is None


def sound_column(index: int) -> Column:
    """The column that says of a row of a set whether what can raise is computed in it."""
    return Column(f"__sound{index}", BOOLEAN)


def _guarded(shape: AggregationJoin, index: int) -> list[Expr]:
    """What a set holds that can raise."""
    held = [named.expr for named in (*shape.keys, *shape.aggregates)]
    return [expr for expr in held if may_fail(expr) and owner_of(shape, expr) == index]


def _guard_of_input(shape: AggregationJoin, index: int) -> Expr | None:
    """The condition under which nothing in an input's set raises; None if nothing ever does."""
    all_guards = (guard(expr) for expr in _guarded(shape, index))
    return conjunction(list(dict.fromkeys(g for g in all_guards if g is not None)))


def _columns_guarded(shape: AggregationJoin, index: int) -> set[str]:
    return {name for expr in _guarded(shape, index) for name in expr.columns()}


def _where(condition: Expr, expr: Expr) -> Expr:
    """An expression where a condition holds, else NULL; an aggregate of the rows where it does."""
    if not isinstance(expr, AggregateCall):
        return Call("case", (condition, expr), expr.type)
    # A constant says what is computed, and of which rows the other arguments say.
    arguments = tuple(
        _where(condition, argument) if argument.columns() else argument
        for argument in expr.arguments
    )
    wanted = expr.filter
    if wanted is not None:
        wanted = Call("case", (condition, wanted, Literal(False, BOOLEAN)), BOOLEAN)
    return AggregateCall(expr.function, arguments, expr.type, expr.distinct, wanted)


def _unless(condition: Expr, expr: Expr) -> Expr:
    return Call("case", (condition, Literal(None, expr.type), expr), expr.type)


def _grouping_attributes(
    shape: AggregationJoin, guards: list[Expr | None]
) -> tuple[tuple[Named, ...], dict[str, tuple[int, Expr]]]:
    """The query's keys over attributes of the sets, and the attributes that are computed."""
    keys: list[Named] = []
    computed: dict[str, tuple[int, Expr]] = {}
    for position, key in enumerate(shape.keys):
        owner = owner_of(shape, key.expr)
        if owner is None or isinstance(key.expr, Column):
            keys.append(key)
            continue
        name, condition = f"__group{position}", guards[owner]
        stored: Expr = Column(name, key.expr.type)
        if condition is not None and may_fail(key.expr):
            computed[name] = owner, _where(condition, key.expr)
            stored = Call("case", (sound_column(owner), stored, key.expr), key.expr.type)
        else:
            computed[name] = owner, key.expr
        keys.append(Named(key.name, stored))
    return tuple(keys), computed


def _columns_needed(
    shape: AggregationJoin, keys: tuple[Named, ...], split: Mapping[int, Factored], index: int
) -> set[str]:
    """Columns of an input that something above its set reads as they are."""
    graph = shape.graph
    plain = [key.expr for key, written in zip(keys, shape.keys, strict=True) if key == written]
    readers: list[Expr] = list(plain)
    readers += [
        named.expr
        for position, named in enumerate(shape.aggregates)
        if owner_of(shape, named.expr) is None and position not in split
    ]
    readers += graph.predicates
    for edge in graph.keys:
        readers += [edge.left_key, edge.right_key]
    names = {name for expr in readers for name in expr.columns()}
    if shape.times[index] and shape.panes[index] is None:
        names.add(shape.times[index])
    return names & set(graph.leaves[index].schema.names)


def _counts(
    shape: AggregationJoin, index: int, guarded: set[int], split: Mapping[int, Factored]
) -> bool:
    """Whether some aggregate is multiplied by the number of this input's rows."""
    for position, named in enumerate(shape.aggregates):
        assert isinstance(named.expr, AggregateCall)
        if position in split and index in split[position].inputs:
            continue
        others = owner_of(shape, named.expr) != index
        if named.expr.function in SCALED and (others or position in guarded):
            return True
    return False
