"""Containment: what is among the rows of another query is read there, through a filter.

The paper leaves this to others. A join or an aggregate that asks for less than one that runs
already, on rows that a stronger predicate keeps, and for no column that the other lacks, is that
one filtered by what its own predicate says beyond. What is saved is a join or an aggregate in every
micro-batch; what it costs is a look at the other's rows.

This file has what both cases have in common, and the joins; ``contained_groups`` has the
aggregates, ``containing_operators`` finds the one that runs. Rows that are only filtered need no
such thing: a filter over the stream costs no more than one over another query's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.merge.conditions import Predicate
from headrace.merge.equality import Equality
from headrace.merge.signature import SelectBlock, Signature
from headrace.plan.expressions import Column, Expr, Named, conjunction, conjuncts
from headrace.plan.nodes import Filter, Join, Node, Project
from headrace.plan.types import DataType

#: The meanings of an operator and of all below it, by identity.
Meanings = Mapping[int, Signature]
#: Columns of the wider relation, by what they mean and by type.
Names = Mapping[tuple[object, DataType], str]
#: A condition, and the meanings of the columns that it is about.
CanonicalConjunct = tuple[Expr, Mapping[str, int]]


@dataclass(frozen=True)
class Container:
    """An operator that runs: its plan, and what it and all below it meant when it came."""

    plan: Node
    node: Node
    meanings: Meanings

    @property
    def meaning(self) -> Signature:
        return self.meanings[id(self.node)]


# --- what all containment is made of -------------------------------------------------------------


def single_branches(equality: Equality, *relations: Signature) -> list[SelectBlock] | None:
    """The blocks of relations that read the same, each thing once; else nothing is known."""
    if any(len(relation.branches) != 1 for relation in relations):
        return None
    branches = [relation.branches[0] for relation in relations]
    leaves = branches[0].leaves
    forms = equality.signer.terms.forms
    # Of a stream that is joined with itself it is not known which copy is which.
    if any(forms[leaf][0] == "again" for leaf in leaves):
        return None
    return branches if all(branch.leaves == leaves for branch in branches) else None


def implication(equality: Equality, own: Predicate, other: Predicate) -> Implication | None:
    """How a predicate goes beyond another that it implies; None where that is not known."""
    stronger, weaker = _all_safe(own), _all_safe(other)
    if stronger is None or weaker is None or not _implies(equality, stronger, weaker):
        return None
    return Implication(equality, stronger, weaker)


@dataclass(frozen=True)
class Implication:
    """A predicate that implies another one."""

    equality: Equality
    conjuncts: frozenset[int]
    implied: frozenset[int]

    def residual(self, conditions: list[CanonicalConjunct], names: Names) -> list[Expr] | None:
        """What is said beyond what is implied, over the wider relation's columns.

        ``conditions`` is how it was said. None where that is not all of it, or lacks a column.
        """
        beyond: list[Expr] = []
        explained: set[int] = set()
        translate = self.equality.signer.conditions
        for expr, columns in conditions:
            parts = translate.true_parts(translate.value(expr, columns))
            explained.update(parts)
            if not self.implied.issuperset(parts):
                moved = _moved(expr, columns, names)
                if moved is None:
                    return None
                beyond.append(moved)
        return beyond if self.conjuncts - self.implied <= explained else None


def filters_below(node: Node, meanings: Meanings) -> list[CanonicalConjunct]:
    """The conditions of filters that stand on top of a relation, below nothing but projections."""
    conditions: list[CanonicalConjunct] = []
    while isinstance(node, Filter | Project):
        if isinstance(node, Filter):
            columns = meanings[id(node)].branches[0].columns
            conditions += [(conjunct, columns) for conjunct in conjuncts(node.predicate)]
        node = node.input
    return conditions


def read_through(
    container: Container,
    residual: list[Expr],
    columns: Sequence[tuple[str, object, DataType]],
    names: Names,
) -> Node | None:
    """The wider relation, filtered, with the wanted columns; None where it lacks one of them."""
    output = []
    for name, meaning, kind in columns:
        given = names.get((meaning, kind))
        if given is None:
            return None
        output.append(Named(name, Column(given, kind)))
    predicate = conjunction(residual)
    rows = container.plan if predicate is None else Filter(container.plan, predicate)
    return Project(rows, tuple(output))


def _all_safe(predicate: Predicate) -> frozenset[int] | None:
    """The conditions of a predicate that never raises."""
    if not predicate:
        return frozenset()
    only = predicate[0]
    return only if len(predicate) == 1 and isinstance(only, frozenset) else None


def _implies(equality: Equality, own: frozenset[int], implied: frozenset[int]) -> bool:
    if implied <= own:
        return True
    conditions = equality.signer.conditions
    if conditions.simplified(own | implied) == conditions.simplified(own):
        return True
    if equality.solver is None or equality.witnesses.escapes((own,), (implied,)):
        return False
    return equality.solver.implies((own,), (implied,))


def _moved(conjunct: Expr, columns: Mapping[str, int], names: Names) -> Expr | None:
    """A condition over the columns of the wider relation; None where that lacks one."""
    wanted = {e for e in conjunct.walk() if isinstance(e, Column)}
    names_there = {column: names.get((columns[column.name], column.type)) for column in wanted}
    if None in names_there.values():
        return None

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Column):
            name = names_there[expr]
            assert name is not None
            return Column(name, expr.type)
        return expr

    return conjunct.transform(change)


# --- joins ---------------------------------------------------------------------------------------


def join_within(
    join: Join, meanings: Meanings, equality: Equality, container: Container
) -> Node | None:
    """A join as rows of a wider one, or None where it is not known to be that."""
    own = meanings[id(join)]
    branches = single_branches(equality, own, container.meaning)
    if branches is None:
        return None
    # As they are built: what is equal in the narrower one need not be so in the other.
    ours, theirs = branches
    beyond = implication(equality, ours.predicate, theirs.predicate)
    if beyond is None:
        return None
    names: Names = {
        (term, container.plan.schema[name].type): name for name, term in theirs.columns.items()
    }
    conditions = [c for side in join.inputs for c in filters_below(side, meanings)]
    conditions += [(conjunct, ours.columns) for conjunct in conjuncts(join.residual)]
    residual = beyond.residual(conditions, names)
    if residual is None:
        return None
    wanted = [(f.name, ours.columns[f.name], f.type) for f in join.schema]
    return read_through(container, residual, wanted, names)
