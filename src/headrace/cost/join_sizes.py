"""How many rows come out of joining a set of inputs, in whatever order it is joined.

In rows per millisecond, for inputs whose times are tied by spans and whose keys by equality,

    rows(S) = Π rate · Π span of a spanning tree of S · Π share of each class of equal keys
              · Π share of each predicate that S can decide

A class of equal keys leaves 1 / (the values of all but the rarest member) if all values are alike.
They seldom are: of values known to be frequent the shares of rows that have them are multiplied,
value by value, and only the rest is taken to be alike. Streams of which one value makes a third of
the rows give thirty times the pairs that a hundred values alone would say.

Where a join was seen to give more or fewer rows than that, the estimate for all that it is part of
is put right by the same factor: what was wrong about a part is wrong about the whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from headrace.cost.join_load import JoinLoad
from headrace.plan.join_graph import JoinGraph

#: One observation does not move estimates further than this.
MOST_CORRECTION = 1e6


@dataclass
class JoinSizes:
    """Sizes under one load. Sets of inputs are masks of bits: a search asks for thousands."""

    graph: JoinGraph
    load: JoinLoad
    spans: Mapping[tuple[int, int], float | None]
    _rows: dict[int, float] = field(default_factory=dict)
    _assumed: dict[int, float] = field(default_factory=dict)

    def rows(self, mask: int) -> float:
        """Rows per millisecond that come out of joining a set of inputs."""
        size = self._rows.get(mask)
        if size is None:
            size = self._rows[mask] = self._assume(mask) * self._correction(mask)
        return size

    def _assume(self, mask: int) -> float:
        """Without what was seen of joins."""
        size = self._assumed.get(mask)
        if size is None:
            size = self._assumed[mask] = self._estimate(mask)
        return size

    def _estimate(self, mask: int) -> float:
        decided = (share for owners, share in self._predicates if owners & mask == owners)
        return self.combinations(mask) * self.key_share(self._members(mask)) * prod(decided)

    def _members(self, mask: int) -> list[int]:
        return [i for i in range(len(self.graph.leaves)) if mask >> i & 1]

    def combinations(self, mask: int) -> float:
        """Combinations of a row of each input whose times fit, per millisecond."""
        members = self._members(mask)
        rows = prod(self.load.rates[index] for index in members)
        group = {index: index for index in members}
        apart = len(members) - 1
        for span, one, other in self._pairs:
            if not apart:
                break
            if not (mask >> one & 1 and mask >> other & 1) or group[one] == group[other]:
                continue
            rows *= span
            apart -= 1
            merged = group[other]
            group = {i: group[one] if g == merged else g for i, g in group.items()}
        return rows

    @cached_property
    def _pairs(self) -> list[tuple[float, int, int]]:
        """All pairs of inputs, those tied closest first."""
        count = len(self.graph.leaves)
        return sorted(
            (self._span(one, other), one, other)
            for one in range(count)
            for other in range(one + 1, count)
        )

    def _span(self, one: int, other: int) -> float:
        span = self.spans.get((one, other))
        return self.load.stretch if span is None else span

    @cached_property
    def _predicates(self) -> list[tuple[int, float]]:
        """Masks of the inputs that predicates read, with the shares that they leave."""
        return [
            (mask_of(self.graph.owners(predicate)), self.load.shares[position])
            for position, predicate in enumerate(self.graph.predicates)
            if position in self.load.shares
        ]

    def key_share(self, members: Sequence[int]) -> float:
        """The share of combinations of rows whose keys are equal."""
        share = 1.0
        for position, ends in enumerate(self.graph.key_classes):
            inputs = sorted({index for index, _ in ends if index in members})
            if len(inputs) > 1:
                share *= self._class_share(position, inputs)
        return share

    def _class_share(self, position: int, inputs: Sequence[int]) -> float:
        frequent = [self.load.frequent.get((index, position), {}) for index in inputs]
        counts = [max(self.load.keys.get((index, position), 1.0), 1.0) for index in inputs]
        values: set[Hashable] = {value for by_value in frequent for value in by_value}
        rests = [max(0.0, 1.0 - sum(by_value.values())) for by_value in frequent]
        alike = [
            rest / max(count - len(by_value), 1.0)
            for rest, count, by_value in zip(rests, counts, frequent, strict=True)
        ]
        together = 0.0
        for value in values:
            shares = [
                by_value.get(value, usual) for by_value, usual in zip(frequent, alike, strict=True)
            ]
            together += prod(shares)
            rests = [
                rest if value in by_value else max(0.0, rest - usual)
                for rest, by_value, usual in zip(rests, frequent, alike, strict=True)
            ]
        left = sorted(max(count - len(values), 1.0) for count in counts)
        return min(1.0, together + prod(rests) / prod(left[1:]))

    @cached_property
    def _seen(self) -> list[tuple[int, float]]:
        """Sets whose joins were seen, the largest first, and how far estimates of them were off."""
        corrections = []
        for inputs, rows in sorted(
            self.load.seen.items(), key=lambda item: (-len(item[0]), sorted(item[0]))
        ):
            mask = mask_of(inputs)
            assumed = self._assume(mask)
            if len(inputs) > 1 and assumed > 0:
                factor = min(max(rows / assumed, 1 / MOST_CORRECTION), MOST_CORRECTION)
                corrections.append((mask, factor))
        return corrections

    def _correction(self, mask: int) -> float:
        """What was seen of the largest parts of a set that have no input in common."""
        factor, rest = 1.0, mask
        for part, off in self._seen:
            if part & rest == part:
                factor *= off
                rest ^= part
        return factor


def mask_of(inputs: Sequence[int] | frozenset[int]) -> int:
    return sum(1 << index for index in inputs)
