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
from headrace.plan.types import Schema
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
    return isinstance(node, Aggregate) and of_panes(node) is not None


@lru_cache(REMEMBERED)
def of_panes(node: Aggregate) -> Aggregate | None:
    """What of an aggregate is computed from panes: all of it mostly.

    Where a function needs the rows, these are kept anyway. The others go their own way if they read
    columns that would be kept for their sake alone.
    """
    if not isinstance(node.windows[0], Hopping) or node.from_sets:
        return None
    if decompose_all(node.aggregates) is not None:
        return node
    if not reads_streams_plainly(node.input):
        return None
    if not any(map(decomposes, node.aggregates)):
        return None
    panes, rows = (
        replace(node, aggregates=tuple(n for n in node.aggregates if decomposes(n) is wanted))
        for wanted in (True, False)
    )
    return panes if _columns(panes) - _columns(rows) else None


def of_rows_alone(node: Aggregate) -> Aggregate:
    """What of an aggregate is computed from rows where the rest is from panes, over a stream of no
    more columns than that needs."""
    aggregates = tuple(named for named in node.aggregates if not decomposes(named))
    rows = replace(node, aggregates=aggregates)
    filters = (part.predicate for part in node.input.walk() if isinstance(part, Filter))
    needed = _columns(rows).union(*(predicate.columns() for predicate in filters))

    def pruned(part: Node) -> Node:
        if not isinstance(part, Source):
            return part
        fields = tuple(f for f in part.columns if f.name in needed or f.name == part.time)
        return replace(part, columns=Schema(fields))

    return replace(rows, input=node.input.transform(pruned))


def decomposes(aggregate: Named) -> bool:
    """Whether a function has partial states."""
    return decompose_all([aggregate]) is not None


def _columns(node: Aggregate) -> frozenset[str]:
    """The columns that an aggregate reads."""
    read = [named.expr for named in (*node.keys, *node.aggregates)]
    return frozenset({node.time.name}).union(*(expr.columns() for expr in read))


def aggregates_by_family(plans: Iterable[Node]) -> dict[str, list[Aggregate]]:
    """The aggregates that have panes, by grouping, in the order they are met."""
    by_family: dict[str, list[Aggregate]] = {}
    for plan in plans:
        for node in plan.walk():
            panes = of_panes(node) if isinstance(node, Aggregate) else None
            if panes is not None:
                by_family.setdefault(Grouping.of(panes).family, []).append(panes)
    return by_family


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
