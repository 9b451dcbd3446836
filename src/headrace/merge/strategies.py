"""The ways to find out which operators are equal, from not at all to by meaning.

A strategy reads a plan and gives keys to its operators; operators with equal keys are merged. The
names are the paper's: HB and HB+ hash how a plan is written, SA compares operator graphs, SM
compares meanings, SM+ looks at the writing first, and SM-BU looks from the sources up.

Paper: Query Merging, Section 6.3.
"""

from __future__ import annotations

from enum import Enum

from headrace.errors import HeadraceError
from headrace.merge.equality import Equality
from headrace.merge.signer import Signer
from headrace.merge.syntax import Syntax, same_structure
from headrace.plan.nodes import Node


class MergeStrategy(Enum):
    """How sharing is found."""

    NONE = "none"
    HB = "hb"
    HB_PLUS = "hb+"
    STRUCTURAL = "structural"
    SM = "sm"
    SM_PLUS = "sm+"
    SM_BU = "sm-bu"

    @classmethod
    def named(cls, name: str) -> MergeStrategy:
        try:
            return cls(name.lower())
        except ValueError:
            raise HeadraceError(
                f"no merging strategy {name!r}",
                hint=f"use one of {', '.join(s.value for s in cls)}",
                condition="UNKNOWN_STRATEGY",
            ) from None

    @property
    def by_meaning(self) -> bool:
        return self in (MergeStrategy.SM, MergeStrategy.SM_PLUS, MergeStrategy.SM_BU)


class Matcher:
    """Gives keys to operators: equal keys are equal results. This one calls nothing equal."""

    def __init__(self) -> None:
        self._next = 0

    def keys(self, plan: Node) -> dict[int, int]:
        """The key of each operator, by the operator's identity."""
        numbers = {}
        for node in plan.walk():
            self._next += 1
            numbers[id(node)] = self._next
        return numbers

    def root(self, plan: Node) -> int:
        """The key of the whole plan, which may be known without the others."""
        return self.keys(plan)[id(plan)]

    def columns(self, node: Node) -> dict[str, int]:
        """What each column of an operator means, to find it in an equal one."""
        return {name: index for index, name in enumerate(sorted(node.schema.names))}


class WrittenMatcher(Matcher):
    """HB and HB+: by how operators are written."""

    def __init__(self, sort: bool, unbounded: bool) -> None:
        super().__init__()
        self._syntax = Syntax(sort, unbounded)

    def keys(self, plan: Node) -> dict[int, int]:
        return self._syntax.keys(plan)


class StructuralMatcher(Matcher):
    """SA: by comparing with one known graph after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[frozenset[str], list[tuple[Node, int]]] = {}

    def keys(self, plan: Node) -> dict[int, int]:
        numbers: dict[int, int] = {}
        for node in plan.walk():
            graphs = self._known.setdefault(node.streams(), [])
            number = next((key for other, key in graphs if same_structure(node, other)), None)
            if number is None:
                self._next += 1
                number = self._next
                graphs.append((node, number))
            numbers[id(node)] = number
        return numbers

    def root(self, plan: Node) -> int:
        graphs = self._known.setdefault(plan.streams(), [])
        number = next((key for other, key in graphs if same_structure(plan, other)), None)
        if number is None:
            self._next += 1
            number = self._next
            graphs.append((plan, number))
        return number


class MeaningMatcher(Matcher):
    """SM: by what operators mean. ``written_first`` spares that for a plan that is written as one
    that is known (SM+).

    The paper's SM+ tries HB+ first. Ours goes by the writing itself: to sort operands takes about
    as long as to find out what they mean.
    """

    def __init__(
        self, written_first: bool, unbounded: bool, solver_steps: int, named: bool = True
    ) -> None:
        super().__init__()
        self.equality = Equality(Signer(unbounded), solver_steps, named)
        self._syntax = Syntax(sort=False) if written_first else None
        self._by_text: dict[int, int] = {}

    def keys(self, plan: Node) -> dict[int, int]:
        signatures = self.equality.signer.signatures(plan)
        return {node: self.equality.key(signature) for node, signature in signatures.items()}

    def root(self, plan: Node) -> int:
        if self._syntax is None:
            return self.equality.key(self.equality.signer.of(plan))
        text = self._syntax.keys(plan)[id(plan)]
        key = self._by_text.get(text)
        if key is None:
            key = self.equality.key(self.equality.signer.of(plan))
            self._by_text[text] = key
        return key

    def columns(self, node: Node) -> dict[str, int]:
        signer = self.equality.signer
        return signer.columns(signer.of(node))


def make_matcher(
    strategy: MergeStrategy, unbounded: bool, solver_steps: int, named: bool = True
) -> Matcher:
    match strategy:
        case MergeStrategy.NONE:
            return Matcher()
        case MergeStrategy.HB | MergeStrategy.HB_PLUS:
            return WrittenMatcher(strategy is MergeStrategy.HB_PLUS, unbounded)
        case MergeStrategy.STRUCTURAL:
            return StructuralMatcher()
        case MergeStrategy.SM | MergeStrategy.SM_BU | MergeStrategy.SM_PLUS:
            return MeaningMatcher(strategy is MergeStrategy.SM_PLUS, unbounded, solver_steps, named)
