"""Groupings: rows of one input by some keys, which is what panes are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from headrace.definitions.partials import decompose_all
from headrace.plan.expressions import Column, Expr, Named
from headrace.plan.json import from_json, to_json
from headrace.plan.nodes import Aggregate, Filter, Node, Source
from headrace.plan.windows import Hopping
from headrace.planner.filter_sharing import stream_below

#: Aggregates whose grouping is remembered: plans are compiled anew whenever a query comes or goes.
REMEMBERED = 16_384
#: How partial states are stored. Panes of another number are not those of this version: sums have
#: two halves since 2.
_LAYOUT = 2


@dataclass(frozen=True)
class Grouping:
    """An input, its keys and its time. Aggregates over the same one can share panes.

    Which columns of a stream a query reads beside the keys is no part of what a grouping is: a
    store has the partial states that any query needs.
    """

    input: Node
    keys: tuple[Expr, ...]
    time: Column
    sharing: str = ""

    @staticmethod
    @lru_cache(REMEMBERED)
    def of(node: Aggregate) -> Grouping:
        keys = tuple(key.expr for key in node.keys)
        return Grouping(node.input, keys, node.time, node.sharing)

    @property
    def _shape(self) -> Aggregate:
        keys = tuple(Named(f"k{i}", key) for i, key in enumerate(self.keys))
        return Aggregate(self.input, keys, self.time, (Hopping(1, 1),), (), self.sharing)

    @cached_property
    def family(self) -> str:
        """A name that is the same for equal groupings, in every process."""
        return f"panes-{_digest(self._shape)}"

    @cached_property
    def rows(self) -> str:
        """The same for groupings of the same rows, whatever their keys."""
        return _digest(Grouping(self.input, (), self.time, self.sharing)._shape)

    @cached_property
    def unfiltered(self) -> Grouping | None:
        """The same grouping of all rows of the stream, where this one is of some of them."""
        below = stream_below(self.input)
        return None if below is None else replace(self, input=below[0])

    def is_coarser_than(self, other: Grouping) -> bool:
        """Whether its groups are unions of the other's; keys in another order are the same."""
        return self.rows == other.rows and set(self.keys) <= set(other.keys)

    def to_json(self) -> dict[str, Any]:
        return to_json(self._shape)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Grouping:
        shape = from_json(value)
        assert isinstance(shape, Aggregate)
        return Grouping.of(shape)


@lru_cache(REMEMBERED)
def has_panes(node: Node) -> bool:
    """Whether an aggregate is computed from panes that are laid out for its grouping."""
    if not isinstance(node, Aggregate) or not isinstance(node.windows[0], Hopping):
        return False
    if node.from_sets:
        return False
    return decompose_all(node.aggregates) is not None


def aggregates_by_family(plans: Iterable[Node]) -> dict[str, list[Aggregate]]:
    """The aggregates that have panes, by grouping, in the order they are met."""
    found: dict[str, list[Aggregate]] = {}
    for plan in plans:
        for node in plan.walk():
            if isinstance(node, Aggregate) and has_panes(node):
                found.setdefault(Grouping.of(node).family, []).append(node)
    return found


def windows_of(nodes: Iterable[Aggregate]) -> frozenset[Hopping]:
    return frozenset(w for node in nodes for w in node.windows if isinstance(w, Hopping))


def reads_streams_plainly(node: Node) -> bool:
    """Whether an input is a stream with nothing but filters over it.

    Such an input means the same whichever columns of the stream are read.
    """
    return all(isinstance(part, Filter | Source) for part in node.walk())


def _digest(shape: Aggregate) -> str:
    written = to_json(shape)
    if reads_streams_plainly(shape.input):
        for node in written["nodes"]:
            if node["op"] == "source":
                node["columns"] = []
    text = json.dumps([_LAYOUT, written], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
