"""Containment: a join whose rows are among those of another reads them there, through a filter.

The paper leaves this to others. A join with the same leaves as one that runs already, a predicate
that implies the other's, and no column that the other lacks, is that join filtered by what its own
predicate says beyond. What is saved is a join in every micro-batch; what it costs is a look at the
other's rows. Aggregates need no such thing: filters of their own are folded into one arrangement
when they run, and columns that one query lacks are partial states that another adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.merge.equality import Equality
from headrace.merge.signature import Signature
from headrace.plan.expressions import Column, Expr, Named, conjunction, conjuncts
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project
from headrace.plan.types import DataType


@dataclass(frozen=True)
class Wider:
    """A join that runs: its plan, and what that means."""

    plan: Node
    meaning: Signature


def within(
    join: Join, sides: Mapping[int, Signature], equality: Equality, wider: Wider
) -> Node | None:
    """A join as rows of a wider one, or None where it is not known to be that."""
    own = sides[id(join)]
    if len(own.branches) != 1 or len(wider.meaning.branches) != 1:
        return None
    ours, theirs = own.branches[0], wider.meaning.branches[0]
    if ours.leaves != theirs.leaves or _joined_with_itself(equality, ours.leaves):
        return None
    said, known = _parts(ours.predicate), _parts(theirs.predicate)
    if said is None or known is None or not _implies(equality, said, known):
        return None
    names = {
        (term, wider.plan.schema[name].type): name for name, term in wider.meaning.columns.items()
    }
    residual: list[Expr] = []
    explained: set[int] = set()
    for conjunct, columns in _conditions(join, sides):
        value = equality.signer.conditions.value(conjunct, columns)
        parts = equality.signer.conditions.true_parts(value)
        explained.update(parts)
        if not known.issuperset(parts):
            moved = _moved(conjunct, columns, names)
            if moved is None:
                return None
            residual.append(moved)
    if not said - known <= explained:
        return None
    output = []
    for field in join.schema:
        name = names.get((own.columns[field.name], field.type))
        if name is None:
            return None
        output.append(Named(field.name, Column(name, field.type)))
    kept = conjunction(residual)
    rows = wider.plan if kept is None else Filter(wider.plan, kept)
    return Project(rows, tuple(output))


def topmost_joins(plan: Node) -> list[Join]:
    """The joins of a plan that are not part of another, nor of an aggregate over its sets."""
    if isinstance(plan, Join):
        return [plan]
    if isinstance(plan, Aggregate) and plan.from_sets:
        return []
    return [join for below in plan.inputs for join in topmost_joins(below)]


def _joined_with_itself(equality: Equality, leaves: tuple[int, ...]) -> bool:
    return any(equality.signer.terms.forms[leaf][0] == "again" for leaf in leaves)


def _parts(predicate: tuple[frozenset[int] | int, ...]) -> frozenset[int] | None:
    """The conditions of a predicate that never raises."""
    if not predicate:
        return frozenset()
    only = predicate[0]
    return only if len(predicate) == 1 and isinstance(only, frozenset) else None


def _implies(equality: Equality, said: frozenset[int], known: frozenset[int]) -> bool:
    if known <= said:
        return True
    conditions = equality.signer.conditions
    if conditions.simplified(said | known) == conditions.simplified(said):
        return True
    return equality.solver is not None and equality.solver.implies((said,), (known,))


def _conditions(join: Join, sides: Mapping[int, Signature]) -> list[tuple[Expr, Mapping[str, int]]]:
    """The filters of a join's inputs and its own, each with the columns that it reads."""
    found: list[tuple[Expr, Mapping[str, int]]] = []
    for side in join.inputs:
        while isinstance(side, Filter | Project):
            if isinstance(side, Filter):
                columns = sides[id(side)].columns
                found += [(conjunct, columns) for conjunct in conjuncts(side.predicate)]
            side = side.input
    own = sides[id(join)].columns
    return found + [(conjunct, own) for conjunct in conjuncts(join.residual)]


def _moved(
    conjunct: Expr, columns: Mapping[str, int], names: Mapping[tuple[int, DataType], str]
) -> Expr | None:
    """A condition over the columns of the wider join; None where that lacks one."""
    wanted = {e for e in conjunct.walk() if isinstance(e, Column)}
    found = {column: names.get((columns[column.name], column.type)) for column in wanted}
    if None in found.values():
        return None

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Column):
            name = found[expr]
            assert name is not None
            return Column(name, expr.type)
        return expr

    return conjunct.transform(change)
