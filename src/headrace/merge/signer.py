"""Makes the signatures of a plan's operators, from the sources to the sink.

Predicates that are spelt differently may be proved equal (``equality``). Then the core of one
stands for both, in everything that is made of them.

Paper: Query Merging, Section 4.2, Section 4.2.1, Section 4.2.2, Section 4.2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.merge.aggregate_forms import AggregateForms, average_of, independent_keys
from headrace.merge.conditions import Conditions
from headrace.merge.join_signer import JoinSigner
from headrace.merge.normal_blocks import NormalBlock, NormalBlocks, as_it_is
from headrace.merge.rebuilding import Rebuilding
from headrace.merge.signature import SelectBlock, Signature
from headrace.merge.terms import Terms
from headrace.plan.expressions import AggregateCall, Column, Expr
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    WINDOW_ID_COLUMN,
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.types import STRING, WINDOW, Schema
from headrace.plan.windows import Landmark, Trailing


class Signer:
    """Makes signatures, over one space of terms."""

    def __init__(self, unbounded: bool = False) -> None:
        self.terms = Terms(unbounded)
        self.conditions = Conditions(self.terms)
        self._blocks = NormalBlocks(self.conditions)
        #: A block, or one before it whose predicate is proved equal; set by ``Equality``.
        self.settle: Callable[[SelectBlock], SelectBlock] = lambda branch: branch
        self._joins = JoinSigner(self)
        self.aggregates = AggregateForms(self)
        self.terms.quotient = average_of

    def signatures(self, plan: Node) -> dict[int, Signature]:
        """The signature of every operator of a plan, by the operator's identity."""
        by_node: dict[int, Signature] = {}

        def visit(node: Node) -> Signature:
            signature = by_node.get(id(node))
            if signature is None:
                signature = self.sign(node, [visit(below) for below in node.inputs])
                by_node[id(node)] = signature
            return signature

        visit(plan)
        return by_node

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
                return self._joins.sign(node, *inputs)
            case Sink():
                return inputs[0]
            case _:
                raise AssertionError(f"{type(node).__name__} has no signature")

    # Signatures from branches

    def core(self, signature: Signature) -> int:
        """A number for the rows of a relation, whatever is shown of them."""
        if signature.known_core is None:
            only = signature.branches[0]
            signature.known_core = self.terms.intern(
                ("block", only.leaves, self.normal(self.settle(only)).where)
            )
        return signature.known_core

    def made(self, schema: Schema, branches: Sequence[SelectBlock]) -> Signature:
        if len(branches) == 1:
            # What its core is takes a proof at times, and nobody may ask.
            return Signature(tuple(branches), schema)
        shown = [self._shown(branch) for branch in branches]
        order = sorted(
            # To put branches in one order; what their columns are called is no matter.
            (
                *(b.leaves, self.normal(self.settle(b)).where),
                *(tuple(sorted(shown[n][name] for name in schema.names)), n),
            )
            for n, b in enumerate(branches)
        )
        core = self.terms.intern(("union", tuple((leaves, where) for leaves, where, *_ in order)))
        columns = {
            name: self.terms.intern(("columns", tuple(shown[n][name] for *_, n in order)))
            for name in schema.names
        }
        return Signature(tuple(branches[n] for *_, n in order), schema, core, columns)

    def columns(self, signature: Signature) -> dict[str, int]:
        """The columns of a relation, with the number of what each means."""
        if signature.known_columns is None:
            signature.known_columns = self._shown(signature.branches[0])
        return signature.known_columns

    def _shown(self, branch: SelectBlock) -> dict[str, int]:
        labeled = self.normal(branch).labeled
        equated = self.normal(self.settle(branch)).equated
        if labeled is as_it_is and equated is as_it_is:
            return branch.columns
        return {name: equated(labeled(term)) for name, term in branch.columns.items()}

    def settled(self, term: int, branch: SelectBlock) -> int:
        """A term over a block's columns as it stands for all blocks of equal rows.

        That is by the equations of the one that came first: proofs find some that no spelling
        shows.
        """
        first = self.normal(self.settle(branch))
        return first.equated(self.normal(branch).labeled(term))

    def normal(self, branch: SelectBlock) -> NormalBlock:
        """The one spelling of a block; nobody may ask."""
        if branch.known_normal is None:
            branch.known_normal = self._blocks.block(
                branch.leaves, branch.predicate, branch.columns
            )
        return branch.known_normal

    def leaf(self, schema: Schema, leaf: int, columns: dict[str, int]) -> Signature:
        """All rows of a relation that is not looked into."""
        return self.made(schema, [SelectBlock((leaf,), (), columns)])

    def _of_leaf(self, node: Node, leaf: int) -> Signature:
        columns = {
            field.name: self.terms.variable(leaf, field.name, field.type) for field in node.schema
        }
        return self.leaf(node.schema, leaf, columns)

    # Row by row

    def _filtered(self, node: Filter, below: Signature) -> Signature:
        branches = []
        for branch in below.branches:
            predicate = self.conditions.where(branch.predicate, node.predicate, branch.columns)
            branches.append(SelectBlock(branch.leaves, predicate, branch.columns))
        return self.made(node.schema, branches)

    def _projected(self, node: Project, below: Signature) -> Signature:
        terms = self.terms
        branches = [
            SelectBlock(
                branch.leaves,
                branch.predicate,
                {
                    c.name: branch.columns[c.expr.name]
                    if isinstance(c.expr, Column)
                    else terms.term(c.expr, branch.columns)
                    for c in node.columns
                },
            )
            for branch in below.branches
        ]
        return self.made(node.schema, branches)

    def _union(self, node: Union, inputs: Sequence[Signature]) -> Signature:
        names = node.schema.names
        branches = []
        for below in inputs:
            for branch in below.branches:
                columns = {
                    ours: branch.columns[theirs]
                    for ours, theirs in zip(names, below.schema.names, strict=True)
                }
                branches.append(SelectBlock(branch.leaves, branch.predicate, columns))
        return self.made(node.schema, branches)

    # Aggregates

    def _aggregated(self, node: Aggregate, below: Signature) -> Signature:
        terms = self.terms
        keys = {key.name: self.meaning(key.expr, below) for key in node.keys}
        kinds = {key.name: key.expr.type for key in node.keys}
        # What is computed of other keys, or constant, makes no more groups.
        grouped = independent_keys(terms, keys, kinds)
        if not grouped and any(isinstance(w, Landmark | Trailing) for w in node.windows):
            # Without keys there is one group, even of no rows.
            grouped = frozenset(keys.values())
        leaf = terms.intern(
            (
                "groups",
                self.core(below),
                tuple(sorted(grouped)),
                self.columns(below)[node.time.name],
                tuple(sorted(map(repr, node.windows))),
                tuple((self.columns(below)[w.time.name], repr(w.window)) for w in node.also),
                # A plan that a user forces stays as it is.
                node.sharing,
                "" if node.early == "auto" else node.early,
                node.output,
            )
        )
        variables = {
            meaning: terms.variable(leaf, ("key", meaning), kinds[name])
            for name, meaning in keys.items()
            if meaning in grouped
        }
        of_keys = Rebuilding(self.conditions, variables=variables)
        columns = {
            name: variables[meaning] if meaning in variables else of_keys.rebuilt(meaning)
            for name, meaning in keys.items()
        }
        if node.has_window_column:
            columns[WINDOW_COLUMN] = terms.variable(leaf, "window", WINDOW)
        if len(node.windows) > 1:
            columns[WINDOW_ID_COLUMN] = terms.variable(leaf, "window_id", STRING)
        for named in node.aggregates:
            assert isinstance(named.expr, AggregateCall)
            form = self.aggregates.form(named.expr, node, below)
            columns[named.name] = terms.variable(leaf, form, named.expr.type)
        return self.leaf(node.schema, leaf, columns)

    def meaning(self, expr: Expr, below: Signature) -> int:
        """An expression over a relation: a term, or one for each branch."""
        if isinstance(expr, Column):
            return self.columns(below)[expr.name]
        by_branch = tuple(self.settled(self.terms.term(expr, b.columns), b) for b in below.branches)
        return by_branch[0] if len(by_branch) == 1 else self.terms.intern(("columns", by_branch))
