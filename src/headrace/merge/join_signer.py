"""What joins mean: conditions between relations where they are that, and else what they say.

An inner join is a block over the blocks of its inputs, in whatever order and from whichever side it
is written. Two things bound that. A tree of joins is one operator with one rule of lateness
(``plan.join_graph``): a join that is not part of the tree is a relation of its own, from which rows
come that were not late there. And a column that might raise is computed below the join, for rows
without a partner too.

Outer joins, session joins and joins that hand on their window keep their sides. They are described
by the meanings of their columns, so that names do not matter; sides that may be exchanged stand in
one order.

Paper: Query Merging, Section 4.2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.merge.conditions import Predicate, safe_parts
from headrace.merge.rebuilding import Rebuilding
from headrace.merge.signature import SelectBlock, Signature
from headrace.plan.expressions import Expr
from headrace.plan.join_graph import belongs, has_table
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Filter,
    IntervalBound,
    Join,
    JoinKind,
    JoinTime,
    Node,
    Project,
    SameSession,
    SameWindow,
)
from headrace.plan.types import WINDOW

if TYPE_CHECKING:
    from headrace.merge.signer import Signer


class JoinSigner:
    """Makes the signatures of joins."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._terms = signer.terms
        self._conditions = signer.conditions

    def sign(self, node: Join, left: Signature, right: Signature) -> Signature:
        if _is_block(node):
            block = self._block(node, left, right)
            if block is not None:
                return block
        return self._as_written(node, left, right)

    # Blocks

    def _block(self, node: Join, left: Signature, right: Signature) -> Signature | None:
        """A join as one block over its inputs; None where that would change what raises."""
        ours = self._side(node, node.left, left, node.left_alias)
        theirs = self._side(node, node.right, right, node.right_alias)
        if any(isinstance(part, int) for part in (*ours.predicate, *theirs.predicate)):
            return None
        theirs = self._told_apart(ours, theirs)
        columns = ours.columns | theirs.columns
        parts = [part for a, b in node.keys for part in self._equal(a, b, columns)]
        parts += [self._time(time, columns) for time in node.times]
        if node.residual is not None:
            value = self._conditions.value(node.residual, columns)
            parts += self._conditions.true_parts(value)
        if any(map(self._terms.raises, parts)):
            return None
        parts = [*safe_parts(ours.predicate), *safe_parts(theirs.predicate), *parts]
        predicate = self._conditions.both((), parts)
        leaves = tuple(sorted((*ours.leaves, *theirs.leaves)))
        return self._signer.made(node.schema, [SelectBlock(leaves, predicate, columns)])

    def _side(self, join: Join, node: Node, side: Signature, alias: str | None) -> SelectBlock:
        """An input of a join as one block; one that is not stands there as a leaf."""
        if len(side.branches) != 1 or self._might_raise(side) or not _is_part(join, node):
            return self._relation(side, alias)
        branch = side.branches[0]
        columns = {_qualified(name, alias): term for name, term in branch.columns.items()}
        return SelectBlock(branch.leaves, branch.predicate, columns)

    def _relation(self, side: Signature, alias: str | None) -> SelectBlock:
        """An input of a join that is not looked into."""
        meanings = self._signer.columns(side)
        leaf = self._terms.intern(
            ("relation of its own", self._signer.core(side), self._raising(side))
        )
        columns = {
            _qualified(f.name, alias): self._terms.variable(leaf, meanings[f.name], f.type)
            for f in side.schema
        }
        (branch,) = self._signer.leaf(side.schema, leaf, columns).branches
        return branch

    def _might_raise(self, side: Signature) -> bool:
        return any(
            self._terms.raises(term) for branch in side.branches for term in branch.columns.values()
        )

    def _raising(self, side: Signature) -> tuple[int, ...]:
        """The columns that might raise; one of a union is a term for each branch."""
        raising = set()
        for meaning in self._signer.columns(side).values():
            form = self._terms.forms[meaning]
            if any(map(self._terms.raises, form[1] if form[0] == "columns" else (meaning,))):
                raising.add(meaning)
        return tuple(sorted(raising))

    def _told_apart(self, ours: SelectBlock, theirs: SelectBlock) -> SelectBlock:
        """The right side with leaves of its own, where a relation is joined with itself."""
        terms = self._terms
        taken = set(ours.leaves)
        changes: dict[int, int] = {}
        leaves = []
        for leaf in theirs.leaves:
            fresh, copy = leaf, 1
            while fresh in taken:
                copy += 1
                fresh = terms.intern(("again", leaf, copy))
            taken.add(fresh)
            leaves.append(fresh)
            if fresh != leaf:
                changes[leaf] = fresh
        if not changes:
            return theirs
        renaming = Rebuilding(self._conditions, leaves=changes)
        predicate = renaming.predicate(theirs.predicate)
        columns = {name: renaming.rebuilt(term) for name, term in theirs.columns.items()}
        return SelectBlock(tuple(leaves), predicate, columns)

    def _equal(self, left: Expr, right: Expr, columns: dict[str, int]) -> list[int]:
        return self._conditions.true_parts(self._conditions.comparison("=", left, right, columns))

    def _time(self, time: JoinTime, columns: dict[str, int]) -> int:
        """A condition on the times of two rows; which of them stands left is no matter."""
        match time:
            case SameWindow():
                said: tuple[object, ...] = ("same window", repr(time.window))
            case SameSession():
                said = ("same session", time.gap)
            case IntervalBound():
                said = ("within", time.lower, time.upper)
            case _:
                raise AssertionError(f"{type(time).__name__} is no condition that is known")
        return self._conditions.times(said, columns[time.left.name], columns[time.right.name])

    # As written

    def _as_written(self, node: Join, left: Signature, right: Signature) -> Signature:
        """A join that keeps its sides: it equals one that says the same of equal inputs."""
        ours = self._relation(left, node.left_alias)
        theirs = self._told_apart(ours, self._relation(right, node.right_alias))
        columns = ours.columns | theirs.columns
        sides = (
            (ours.leaves, node.kind.keeps_left, belongs(node, node.left)),
            (theirs.leaves, node.kind.keeps_right, belongs(node, node.right)),
        )
        said = [part for a, b in node.keys for part in self._equal(a, b, columns)]
        said += [self._time(time, columns) for time in node.times]
        if not any(map(self._terms.raises, said)):
            said = sorted(set(said))
        beyond: Predicate = ()
        if node.residual is not None:
            beyond = self._conditions.where((), node.residual, columns)
        leaf = self._terms.intern(
            (
                "join",
                # A forced order names inputs by their places.
                sides if node.order is not None else tuple(sorted(sides)),
                tuple(said),
                self._conditions.number(beyond),
                node.emits_window,
                node.order,
            )
        )
        shown = {
            f.name: self._terms.variable(leaf, columns[f.name], f.type)
            for f in node.schema
            if f.name in columns
        }
        if node.emits_window:
            shown[WINDOW_COLUMN] = self._terms.variable(leaf, "window", WINDOW)
        return self._signer.leaf(node.schema, leaf, shown)


def _is_block(node: Join) -> bool:
    return (
        node.kind is JoinKind.INNER
        and not node.emits_window
        and node.order is None
        and not any(isinstance(time, SameSession) for time in node.times)
    )


def _is_part(join: Join, side: Node) -> bool:
    """Whether an input of a join may be looked into: rows are late in it if they are in the join.

    A join with a table goes row by row, whatever is below it.
    """
    if has_table(join) or belongs(join, side):
        return True
    return not any(isinstance(node, Join) and not has_table(node) for node in _joined(side))


def _joined(node: Node) -> list[Node]:
    """A relation and what is below it, as far as a block looks."""
    if isinstance(node, Filter | Project | Join):
        return [node, *(inner for below in node.inputs for inner in _joined(below))]
    return [node]


def _qualified(name: str, alias: str | None) -> str:
    return name if alias is None else f"{alias}.{name}"
