"""The joins and aggregates that run, by what others must agree on to be within them.

Those with the fewest conditions come first: what they keep holds the most. Only some are tried, so
that a new query costs no more among thousands than among ten.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from headrace.merge.contained_groups import grouping_shape, groups_within
from headrace.merge.containment import Container, Meanings, join_within
from headrace.merge.equality import Equality
from headrace.merge.global_plan import SharedOperator
from headrace.merge.signer import Signer
from headrace.plan.join_graph import belongs
from headrace.plan.nodes import Aggregate, Join, Node

#: Operators that are tried for one.
MOST_TRIED = 16


@dataclass(order=True, frozen=True, slots=True)
class _Candidate:
    conditions: int
    number: int
    operator: SharedOperator = field(compare=False)
    meanings: Meanings = field(compare=False)


class ContainingOperators:
    """Finds one that runs for one that asks for less."""

    def __init__(self) -> None:
        self._candidates: dict[Hashable, list[_Candidate]] = {}
        self._by_key: dict[int, SharedOperator] = {}
        self._noted: set[int] = set()

    def note(self, root: SharedOperator, equality: Equality) -> None:
        """Remember the joins and aggregates of a query."""
        for operator in _operators(root):
            node = operator.node
            if not isinstance(node, Join | Aggregate) or operator.number in self._noted:
                continue
            self._noted.add(operator.number)
            self._by_key[operator.key] = operator
            meanings = equality.signer.signatures(node)
            shape = _shape(node, meanings, equality.signer)
            if shape is not None:
                candidate = _Candidate(
                    _conjunct_count(node, meanings), operator.number, operator, meanings
                )
                insort(self._candidates.setdefault(shape, []), candidate)

    def containing(
        self,
        node: Join | Aggregate,
        equality: Equality,
        plan_of: Callable[[SharedOperator], Node],
        pays: Callable[[Node, Node, Node], bool],
        among: Collection[int] | None = None,
    ) -> Node | None:
        """An operator as rows of one that runs and holds more, if there is one and that pays.

        ``among`` are the numbers of those that may be read, if not any.
        """
        meanings = equality.signer.signatures(node)
        same = self._by_key.get(equality.key(meanings[id(node)]))
        shape = _shape(node, meanings, equality.signer)
        runs = among is None and same is not None and same.users
        if runs or shape not in self._candidates:
            return None
        self._forget_gone(shape)
        candidates: Iterator[_Candidate] = iter(self._candidates[shape])
        if among is not None:
            own = None if same is None else same.number
            candidates = (c for c in candidates if c.number in among and c.number != own)
        for candidate in islice(candidates, MOST_TRIED):
            if candidate.conditions > _conjunct_count(node, meanings):
                return None
            container = Container(
                plan_of(candidate.operator), candidate.operator.node, candidate.meanings
            )
            if isinstance(node, Join):
                contained = join_within(node, meanings, equality, container)
            else:
                contained = groups_within(node, meanings, equality, container)
            if contained is not None and pays(node, contained, container.plan):
                return contained
        return None

    def numbers(self, root: SharedOperator) -> set[int]:
        """The joins and aggregates of a query, by their numbers."""
        return {operator.number for operator in _operators(root)} & self._noted

    def _forget_gone(self, shape: Hashable) -> None:
        gone = [
            candidate
            for candidate in self._candidates[shape][:MOST_TRIED]
            if not candidate.operator.users
        ]
        for candidate in gone:
            self._candidates[shape].remove(candidate)
            if self._by_key.get(candidate.operator.key) is candidate.operator:
                del self._by_key[candidate.operator.key]


def _operators(operator: SharedOperator) -> Iterator[SharedOperator]:
    """An operator and those below it, but for joins that are part of a tree: they do not run."""
    yield operator
    node = operator.node
    for below in operator.inputs:
        if isinstance(node, Join) and belongs(node, below.node):
            continue
        yield from _operators(below)


def _shape(node: Join | Aggregate, meanings: Meanings, signer: Signer) -> Hashable | None:
    """What operators must agree on for one to hold rows of the other; None if none can."""
    if isinstance(node, Aggregate):
        return grouping_shape(node, meanings, signer)
    branches = meanings[id(node)].branches
    return ("join", branches[0].leaves) if len(branches) == 1 else None


def _conjunct_count(node: Join | Aggregate, meanings: Meanings) -> int:
    """How many conditions the rows must meet."""
    rows = meanings[id(node.input if isinstance(node, Aggregate) else node)]
    return sum(
        len(segment) if isinstance(segment, frozenset) else 1
        for segment in rows.branches[0].predicate
    )
