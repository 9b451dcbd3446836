"""What a rule and a stage are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.plan.nodes import Node


@dataclass(frozen=True)
class Rule:
    """A rewrite with a name by which it can be turned off.

    ``rewrite`` looks at one node and gives what may stand in its place, or None where it does not
    apply; it never walks the plan by itself. A rule ``on_whole_plan`` is given the root instead:
    for rewrites where what is allowed below depends on all that stands above. One that is
    ``always`` applied is part of what a query means, and cannot be turned off by users.

    The contract: the same columns with the same names and types, the same rows as a multiset, and
    no event time lost or older. Columns and event times are checked after each firing; rows are
    compared by tests, which run plans from before and after.
    """

    name: str
    rewrite: Callable[[Node], Node | None]
    on_whole_plan: bool = False
    always: bool = False


@dataclass(frozen=True)
class Stage:
    """Rules that run together until none of them changes the plan any more."""

    name: str
    why: str
    rules: tuple[Rule, ...]
