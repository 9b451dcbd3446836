"""Signatures: what a plan means, whatever operators in whatever order say it.

The paper's signature is a triple of predicates, tuple transformations and windows, made from the
source to the sink. Ours is the same with one difference: a signature is a *union of branches*, and
each branch has predicates and transformations of its own. So ``A.filter(p) UNION B`` and ``A UNION
B.filter(p)`` differ, which a conjunction over the whole union could not tell.

A branch is a select-project-join block: leaf relations, a predicate over their columns, and a term
per output column. Leaves are streams, tables, and whatever a block cannot look into: aggregates,
outer and session joins. A column of an aggregate is named by what it computes (``sum of this
term``), so queries that ask the same groups for different sums share the leaf.

What two relations with equal ``core`` have in common are their rows; with equal ``key`` also the
names and values of their columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.merge.conditions import Conditions, Predicate, safe_parts
from headrace.merge.terms import Terms
from headrace.plan.expressions import AggregateCall, Column, Expr
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    WINDOW_ID_COLUMN,
    Aggregate,
    Filter,
    Join,
    JoinKind,
    JoinTime,
    Node,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
    Within,
)
from headrace.plan.types import STRING, WINDOW, Schema


@dataclass(slots=True)
class Branch:
    """A select-project-join block."""

    leaves: tuple[int, ...]
    predicate: Predicate
    columns: dict[str, int]
    where: int


@dataclass(slots=True)
class Signature:
    """What one operator puts out. ``columns`` are its columns with the number of their meaning."""

    branches: tuple[Branch, ...]
    core: int
    columns: dict[str, int]
    key: int
    schema: Schema


class Signer:
    """Makes signatures, over one space of terms."""

    def __init__(self, unbounded: bool = False) -> None:
        self.terms = Terms(unbounded)
        self.conditions = Conditions(self.terms)
        self._nothing = self.conditions.number(())

    def signatures(self, plan: Node) -> dict[int, Signature]:
        """The signature of every operator of a plan, by the operator's identity."""
        made: dict[int, Signature] = {}

        def visit(node: Node) -> Signature:
            known = made.get(id(node))
            if known is None:
                known = self.sign(node, [visit(below) for below in node.inputs])
                made[id(node)] = known
            return known

        visit(plan)
        return made

    def of(self, plan: Node) -> Signature:
        return self.signatures(plan)[id(plan)]

    def sign(self, node: Node, inputs: Sequence[Signature]) -> Signature:
        """The signature of an operator over those of its inputs."""
        match node:
            case Source():
                leaf = self.terms.intern(
                    ("stream", node.stream, node.time, node.delay, node.ttl, node.processing)
                )
                return self._of_leaf(node, leaf)
            case Table():
                return self._of_leaf(node, self.terms.intern(("table", node.table)))
            case Filter():
                return self._filtered(node, inputs[0])
            case Project():
                return self._projected(node, inputs[0])
            case Union():
                return self._union(node, inputs)
            case Aggregate():
                return self._aggregated(node, inputs[0])
            case Join():
                return self._joined(node, *inputs)
            case Sink():
                return inputs[0]
            case _:
                raise AssertionError(f"{type(node).__name__} has no signature")

    # Signatures from branches

    def _made(self, node: Node, branches: Sequence[Branch], sort: bool = False) -> Signature:
        if len(branches) == 1:
            only = branches[0]
            core = self.terms.intern(("block", only.leaves, only.where))
            columns = only.columns
        else:
            if sort:
                branches = sorted(branches, key=_order)
            core = self.terms.intern(("union", tuple((b.leaves, b.where) for b in branches)))
            columns = {
                name: self.terms.intern(("columns", tuple(b.columns[name] for b in branches)))
                for name in branches[0].columns
            }
        return self._finished(node.schema, tuple(branches), core, columns)

    def _finished(
        self, schema: Schema, branches: tuple[Branch, ...], core: int, columns: dict[str, int]
    ) -> Signature:
        named = tuple(sorted((f.name, f.type.name, columns[f.name]) for f in schema.fields))
        key = self.terms.intern(("relation", core, named))
        return Signature(branches, core, columns, key, schema)

    def unnamed(self, signature: Signature) -> int:
        """A number for the rows and their values, whatever the columns are called."""
        values = sorted((f.type.name, signature.columns[f.name]) for f in signature.schema)
        return self.terms.intern(("values", signature.core, tuple(values)))

    def _of_leaf(self, node: Node, leaf: int) -> Signature:
        columns = {
            field.name: self.terms.variable(leaf, field.name, field.type) for field in node.schema
        }
        return self._made(node, [Branch((leaf,), (), columns, self._nothing)])

    # Row by row

    def _filtered(self, node: Filter, below: Signature) -> Signature:
        branches = []
        for branch in below.branches:
            predicate = self.conditions.where(branch.predicate, node.predicate, branch.columns)
            where = self.conditions.number(predicate)
            branches.append(Branch(branch.leaves, predicate, branch.columns, where))
        return self._made(node, branches, sort=True)

    def _projected(self, node: Project, below: Signature) -> Signature:
        terms = self.terms
        branches = [
            Branch(
                branch.leaves,
                branch.predicate,
                {
                    c.name: branch.columns[c.expr.name]
                    if isinstance(c.expr, Column)
                    else terms.term(c.expr, branch.columns)
                    for c in node.columns
                },
                branch.where,
            )
            for branch in below.branches
        ]
        return self._made(node, branches, sort=True)

    def _union(self, node: Union, inputs: Sequence[Signature]) -> Signature:
        names = node.schema.names
        branches = []
        for below in inputs:
            for branch in below.branches:
                columns = {
                    ours: branch.columns[theirs]
                    for ours, theirs in zip(names, below.schema.names, strict=True)
                }
                branches.append(Branch(branch.leaves, branch.predicate, columns, branch.where))
        return self._made(node, branches, sort=True)

    # Aggregates

    def _aggregated(self, node: Aggregate, below: Signature) -> Signature:
        terms = self.terms
        keys = {key.name: self._meaning(key.expr, below) for key in node.keys}
        leaf = terms.intern(
            (
                "groups",
                below.core,
                tuple(sorted(set(keys.values()))),
                below.columns[node.time.name],
                tuple(sorted(map(repr, node.windows))),
                tuple((below.columns[w.time.name], repr(w.window)) for w in node.also),
                # A plan that a user forces stays as it is.
                node.sharing,
                "" if node.early == "auto" else node.early,
            )
        )
        columns = {
            key.name: terms.variable(leaf, ("key", keys[key.name]), key.expr.type)
            for key in node.keys
        }
        if node.has_window_column:
            columns[WINDOW_COLUMN] = terms.variable(leaf, "window", WINDOW)
        if len(node.windows) > 1:
            columns[WINDOW_ID_COLUMN] = terms.variable(leaf, "window_id", STRING)
        for named in node.aggregates:
            assert isinstance(named.expr, AggregateCall)
            form = self._aggregate(named.expr, below)
            columns[named.name] = terms.variable(leaf, form, named.expr.type)
        return self._made(node, [Branch((leaf,), (), columns, self._nothing)])

    def _aggregate(self, call: AggregateCall, below: Signature) -> tuple[object, ...]:
        arguments = tuple(
            (argument.type.name, self._meaning(argument, below)) for argument in call.arguments
        )
        chosen: tuple[int, ...] = ()
        if call.filter is not None:
            chosen = tuple(
                self.conditions.number(self.conditions.where((), call.filter, b.columns))
                for b in below.branches
            )
        return (call.function, call.type.name, call.distinct, arguments, chosen)

    def _meaning(self, expr: Expr, below: Signature) -> int:
        """An expression over a relation: a term, or one for each branch."""
        if isinstance(expr, Column):
            return below.columns[expr.name]
        found = tuple(self.terms.term(expr, branch.columns) for branch in below.branches)
        return found[0] if len(found) == 1 else self.terms.intern(("columns", found))

    # Joins

    def _joined(self, node: Join, left: Signature, right: Signature) -> Signature:
        ours = self._side(node.left, left, node.left_alias)
        theirs = self._side(node.right, right, node.right_alias)
        if not _is_block(node) or not self._never_raises((*ours.predicate, *theirs.predicate)):
            return self._opaque_join(node, left, right)
        theirs = self._told_apart(ours, theirs)
        columns = ours.columns | theirs.columns
        parts: list[int] = []
        for a, b in node.keys:
            parts += self._equal(a, b, columns)
        parts += [self._time(time, columns) for time in node.times]
        if node.residual is not None:
            parts += self.conditions.true_parts(self.conditions.value(node.residual, columns))
        if any(map(self.terms.raises, parts)):
            return self._opaque_join(node, left, right)
        parts = [*safe_parts(ours.predicate), *safe_parts(theirs.predicate), *parts]
        predicate = self.conditions.both((), parts)
        leaves = tuple(sorted((*ours.leaves, *theirs.leaves)))
        where = self.conditions.number(predicate)
        return self._made(node, [Branch(leaves, predicate, columns, where)])

    def _equal(self, left: Expr, right: Expr, columns: dict[str, int]) -> list[int]:
        return self.conditions.true_parts(self.conditions.comparison("=", left, right, columns))

    def _side(self, node: Node, side: Signature, alias: str | None) -> Branch:
        """An input of a join as one block; one that is not stands there as a leaf.

        A join below filters or projections is an operator of its own, with late rows of its own. A
        column that might raise is computed for rows without a partner too, so it stays below.
        """
        prefix = "" if alias is None else f"{alias}."
        below = node
        while isinstance(below, Filter | Project):
            below = below.input
        direct = below is node or not isinstance(below, Join)
        raising = tuple(sorted(set(filter(self._may_raise, side.columns.values()))))
        if len(side.branches) == 1 and direct and not raising:
            branch = side.branches[0]
            columns = {prefix + name: term for name, term in branch.columns.items()}
            return Branch(branch.leaves, branch.predicate, columns, branch.where)
        leaf = self.terms.intern(("relation of its own", side.core, raising))
        columns = {
            prefix + f.name: self.terms.variable(leaf, side.columns[f.name], f.type)
            for f in side.schema
        }
        return Branch((leaf,), (), columns, self._nothing)

    def _told_apart(self, ours: Branch, theirs: Branch) -> Branch:
        """The right side with leaves of its own, where a relation is joined with itself."""
        terms = self.terms
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
        done: dict[int, int] = {}
        parts = [terms.renamed(part, changes, done) for part in safe_parts(theirs.predicate)]
        predicate = self.conditions.both((), parts)
        columns = {n: terms.renamed(t, changes, done) for n, t in theirs.columns.items()}
        return Branch(tuple(leaves), predicate, columns, self.conditions.number(predicate))

    def _time(self, time: JoinTime, columns: dict[str, int]) -> int:
        """A condition on the times of two rows; which of them stands left is no matter."""
        left, right = columns[time.left.name], columns[time.right.name]
        match time:
            case SameWindow():
                one, two = sorted((left, right))
                return self.terms.intern(("compare", "same window", repr(time.window), one, two))
            case Within():
                bounds = (time.lower, time.upper)
                if right < left:
                    left, right = right, left
                    bounds = tuple(None if b is None else -b for b in reversed(bounds))  # type: ignore[assignment]
                return self.terms.intern(("compare", "within", bounds, left, right))
            case _:
                raise AssertionError(f"{type(time).__name__} joins are no blocks")

    def _opaque_join(self, node: Join, left: Signature, right: Signature) -> Signature:
        """A join that keeps its sides: it equals one that says the same of equal inputs."""
        shape = (
            node.kind.value,
            repr(node.keys),
            repr(node.times),
            repr(node.residual),
            node.emits_window,
            node.order,
            tuple(sorted(node.left_schema.names)),
            tuple(sorted(node.right_schema.names)),
        )
        leaf = self.terms.intern(("join", left.key, right.key, shape))
        columns = {f.name: self.terms.variable(leaf, f.name, f.type) for f in node.schema}
        return self._made(node, [Branch((leaf,), (), columns, self._nothing)])

    def _may_raise(self, meaning: int) -> bool:
        """Whether a column might raise; one of a union is a term for each branch."""
        form = self.terms.forms[meaning]
        parts = form[1] if form[0] == "columns" else (meaning,)
        return any(map(self.terms.raises, parts))

    def _never_raises(self, segments: Predicate) -> bool:
        return all(isinstance(segment, frozenset) for segment in segments)


def _is_block(node: Join) -> bool:
    return (
        node.kind is JoinKind.INNER
        and not node.emits_window
        and node.order is None
        and not any(isinstance(time, SameSession) for time in node.times)
    )


def _order(branch: Branch) -> tuple[object, ...]:
    return branch.leaves, branch.where, tuple(sorted(branch.columns.values()))
