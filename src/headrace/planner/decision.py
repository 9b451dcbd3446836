"""What a decision of the planner is, and what it can say of one query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from headrace.cost.cost import Cost
from headrace.plan.nodes import Node
from headrace.planner.choices import Choices
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics

if TYPE_CHECKING:
    from headrace.planner.early_aggregation import EarlyChoice
    from headrace.planner.pane_layout import PanePlan


class When(StrEnum):
    """How often a decision is taken again."""

    QUERIES_CHANGE = "when queries come or go"
    NOW_AND_THEN = "when queries come or go, when streams change, and now and then"
    EVERY_EPOCH = "in every epoch"
    EVERY_CYCLE = "when a cycle of statistics ends"


@dataclass(frozen=True)
class PlannedQuery:
    """One query as it is planned beside others, and what its decisions were taken from.

    ``own`` is its optimized plan and ``plan`` the one that it runs, which may be that of another
    query that means the same. ``equals`` are the queries whose rows are computed with its own.
    """

    own: Node
    plan: Node
    panes: PanePlan
    equals: tuple[str, ...] = ()
    early_choices: Sequence[EarlyChoice] = ()
    #: How many read the rows of operators with state, where several do.
    readers: Mapping[Node, int] = field(default_factory=dict)
    policy: PlannerPolicy = field(default_factory=PlannerPolicy)
    statistics: RuntimeStatistics = field(default_factory=RuntimeStatistics)
    choices: Choices = field(default_factory=Choices)
    stored_rows: Callable[[str], int] = lambda store: 0


class Described(Protocol):
    """What was decided of a part of a query, for people and for programs."""

    @property
    def text(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Alternative:
    """A valid plan for a query, and why it was chosen or not."""

    name: str
    cost: Cost
    #: The rule or decision behind it.
    rule: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class RankedPlan:
    """A valid plan of a query, as ``Query.alternatives()`` lists it."""

    info: Alternative
    plan: Node

    def __str__(self) -> str:
        mark = "*" if self.info.chosen else " "
        return (
            f"{mark} {self.info.name}: cost {self.info.cost} ({self.info.rule}) {self.info.reason}"
        )


def _nothing(query: PlannedQuery) -> Sequence[Described]:
    return ()


def _no_other(query: PlannedQuery) -> Iterable[RankedPlan]:
    return ()


@dataclass(frozen=True)
class Decision:
    """A choice that is taken again and again while queries run.

    ``reads`` are the figures of ``RuntimeStatistics`` that it is taken from, ``settings`` those
    that bear upon it beside ``optimizer.disabledRules``, which knows it by its name. ``decide`` is
    the function that takes it.
    """

    name: str
    what: str
    when: When
    reads: tuple[str, ...]
    settings: tuple[str, ...]
    decide: Callable[..., object]
    #: The heading and the name in JSON under which ``explain`` tells of it.
    heading: str
    key: str
    describe: Callable[[PlannedQuery], Sequence[Described]] = _nothing
    #: The other plans that it could have had.
    alternatives: Callable[[PlannedQuery], Iterable[RankedPlan]] = _no_other
