"""The cheapest arborescence: some nodes must be reached from the root, others may be passed.

Nodes are numbers, and so are costs: whole ones of any size, so that nothing is rounded. The first
nodes are *terminals*; each of the others, the *optional* ones, costs its own arc and may make the
arcs of others cheaper. This is the Steiner problem in a directed graph, here without cycles.

The search is branch and bound, the lowest bound first. A local search finds a first tree. In each
part of the search, the dual ascent of Wong (1984) gives a cost that no tree of the part is below,
and lengths that are left over; what cannot be reached below the cost of the best tree by these
lengths is out. What is left is split at an optional node: with it, which makes it a terminal, or
without. The search ends when no part is left that could be cheaper, and the tree is proven to be
the best; or when its budget is used up, and the least bound of what is left is the answer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

#: For each node, what it can be computed from and at which cost, the cheapest first. The root is
#: the number after the last node.
Arcs = Sequence[Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Arborescence:
    """The optional nodes of the best tree that was found, its cost, and a bound for all trees."""

    opened: frozenset[int]
    cost: int
    bound: int

    @property
    def proven(self) -> bool:
        return self.bound == self.cost


def cheapest_tree(
    terminals: int, arcs: Arcs, starts: Iterable[Iterable[int]] = (), budget: int = 1_000_000
) -> Arborescence:
    """The best tree; ``budget`` is how many arcs the search may look at, over all of its parts."""
    present = [_until_present(entering, terminals, len(arcs)) for entering in arcs]
    return _Search(terminals, present, budget).best(map(frozenset, starts))


def _until_present(
    entering: Iterable[tuple[int, int]], terminals: int, root: int
) -> list[tuple[int, int]]:
    """The arcs up to the cheapest one from what is always there, which the others never beat."""
    cheaper_edges = []
    for cost, source in sorted(entering, key=lambda arc: (arc[0], arc[1] != root, arc[1])):
        cheaper_edges.append((cost, source))
        if source < terminals or source == root:
            break
    return cheaper_edges


def _users(arcs: Arcs) -> list[dict[int, int]]:
    users: list[dict[int, int]] = [{} for _ in arcs]
    for node, entering in enumerate(arcs):
        for cost, source in entering:
            if source < len(arcs):
                users[source][node] = cost
    return users


def _sources_first(arcs: Arcs) -> list[int]:
    """All nodes, each after what it can be computed from."""
    users = _users(arcs)
    missing = [sum(source < len(arcs) for _, source in entering) for entering in arcs]
    order = [node for node, count in enumerate(missing) if not count]
    for node in order:
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order


@dataclass(frozen=True)
class _Part:
    """Trees that have these nodes and no others than those that the arcs still mention."""

    forced: frozenset[int]
    arcs: Arcs


class _Search:
    """The state of one search: the best tree so far, and how many arcs may still be looked at."""

    def __init__(self, terminals: int, arcs: Arcs, budget: int) -> None:
        self.terminals = frozenset(range(terminals))
        self.arcs = arcs
        self.root = len(arcs)
        self.left = budget
        self.users = _users(arcs)
        self.order = _sources_first(arcs)
        self.opened: frozenset[int] = frozenset()
        self.cost = self._cost(self.opened)

    def best(self, starts: Iterable[frozenset[int]]) -> Arborescence:
        for start in starts:
            self._keep(self._shrunk(start))
        waiting: list[tuple[int, int, _Part]] = [(0, 0, _Part(frozenset(), self.arcs))]
        split = 0
        while waiting:
            bound, _, part = heappop(waiting)
            if bound >= self.cost:
                break
            if self.left <= 0:
                return Arborescence(self.opened, self.cost, bound)
            # The bound of a part is that of the part it was split from, until it is looked at.
            for least, rest in self._split(part, bound):
                split += 1
                heappush(waiting, (least, split, rest))
        return Arborescence(self.opened, self.cost, self.cost)

    def _split(self, part: _Part, bound: int) -> Iterable[tuple[int, _Part]]:
        """What is left of a part where a cheaper tree may be, in two, with a bound for both."""
        terminals = self.terminals | part.forced
        ascent = _Ascent(terminals, part.arcs, self.order, self.cost, self.left)
        self.left -= ascent.looked_at
        if ascent.bound >= self.cost:
            return ()
        arcs = ascent.below(self.cost)
        free = [n for n in self._optional() if n not in part.forced and arcs[n]]
        self._keep(self._local_optimum(part.forced | (ascent.passed & {*free}), free))
        if not free or ascent.bound >= self.cost:
            self._keep(part.forced)
            return ()
        # A node that the best tree wants, or the ascent does: with it or without it, much changes.
        users = _users(arcs)
        node = max(free, key=lambda n: (n in self.opened, n in ascent.passed, len(users[n])))
        without = [[arc for arc in entering if arc[1] != node] for entering in arcs]
        without[node] = []
        bound = max(bound, ascent.bound)
        return (bound, _Part(part.forced | {node}, arcs)), (bound, _Part(part.forced, without))

    def _optional(self) -> range:
        return range(len(self.terminals), len(self.arcs))

    # Trees

    def _keep(self, opened: frozenset[int]) -> None:
        cost = self._cost(opened)
        if cost < self.cost:
            self.opened, self.cost = opened, cost

    def _cost(self, opened: frozenset[int]) -> int:
        return sum(self._paid(opened).values())

    def _paid(self, opened: frozenset[int]) -> dict[int, int]:
        """What each node costs when these optional ones are there."""
        present = self.terminals | opened
        self.left -= len(present)
        paid = {}
        for node in present:
            for cost, source in self.arcs[node]:
                if source == self.root or source in present:
                    paid[node] = cost
                    break
        return paid

    def _local_optimum(self, start: frozenset[int], free: Sequence[int]) -> frozenset[int]:
        """The best tree that adding, taking out and exchanging these nodes leads to."""
        current = self._grown(self._shrunk(start), free)
        cost = self._cost(current)
        better = True
        while better and self.left > 0:
            better = False
            for trial in self._neighbours(current, free):
                lower = self._cost(trial)
                if lower < cost:
                    current, cost, better = trial, lower, True
                    break
        return current

    def _neighbours(self, current: frozenset[int], free: Sequence[int]) -> Iterator[frozenset[int]]:
        for out in sorted(current):
            if self.left > 0:
                yield self._shrunk(self._grown(current - {out}, free))
        gains = self._gains(current, free)
        for more in sorted(gains, key=lambda node: -gains[node])[:_MOST_SWAPS]:
            if self.left > 0:
                yield self._shrunk(current | {more})

    def _grown(self, opened: frozenset[int], free: Sequence[int]) -> frozenset[int]:
        """Add the node that saves most, until none saves anything."""
        while self.left > 0:
            gains = self._gains(opened, free)
            best = max(gains, key=lambda node: gains[node], default=None)
            if best is None or gains[best] <= 0:
                break
            opened |= {best}
        return opened

    def _shrunk(self, opened: frozenset[int]) -> frozenset[int]:
        """Take nodes out as long as that makes the whole no dearer."""
        cost = self._cost(opened)
        for out in sorted(opened):
            lower = self._cost(opened - {out})
            if lower <= cost:
                opened, cost = opened - {out}, lower
        return opened

    def _gains(self, opened: frozenset[int], free: Sequence[int]) -> dict[int, int]:
        """What each of these nodes more would save."""
        paid = self._paid(opened)
        gains = {}
        for node in free:
            if node in opened:
                continue
            self.left -= len(self.users[node])
            saved = sum(
                paid[user] - cost
                for user, cost in self.users[node].items()
                if user in paid and cost < paid[user]
            )
            if saved:
                own = next(c for c, s in self.arcs[node] if s == self.root or s in paid)
                gains[node] = saved - own
        return gains


#: Swaps are tried for this many nodes at most, those that save most by themselves.
_MOST_SWAPS = 20


class _Ascent:
    """A cost that no tree is below, by dual ascent, and the lengths that it leaves on the arcs.

    As long as a terminal is not reached from the root over arcs of no length, all arcs into the
    set of nodes that reach it are shortened together by the least of them. What was taken off is
    paid by every tree, however long this goes on.
    """

    def __init__(
        self, terminals: frozenset[int], arcs: Arcs, order: Sequence[int], enough: int, budget: int
    ) -> None:
        self.terminals = terminals
        self.arcs = arcs
        self.order = order
        self.root = len(arcs)
        self.rest: list[dict[int, int]] = [
            {source: cost for cost, source in entering} for entering in arcs
        ]
        self.looked_at = 2 * sum(len(entering) for entering in arcs)
        self.bound = 0
        self._ascend(enough, budget)

    def _ascend(self, enough: int, budget: int) -> None:
        reaching = {terminal: {terminal} for terminal in sorted(self.terminals)}
        while reaching and self.bound < enough and self.looked_at < budget:
            # The smallest set first: it has the fewest arcs to shorten.
            terminal = min(reaching, key=lambda t: len(reaching[t]))
            inside = reaching[terminal]
            entering = []
            for node in inside:
                rest = self.rest[node]
                self.looked_at += len(rest)
                entering += [(length, node, s) for s, length in rest.items() if s not in inside]
            if not entering:
                # No way from the root is left: there is no such tree.
                self.bound = enough
                return
            least = min(entering)[0]
            self.bound += least
            for length, node, source in entering:
                self.rest[node][source] = length - least
                if length == least:
                    for nodes in reaching.values():
                        if node in nodes:
                            self._reach(nodes, source)
            reaching = {t: nodes for t, nodes in reaching.items() if self.root not in nodes}

    def _reach(self, nodes: set[int], source: int) -> None:
        """Add a node, and all from which it is reached over arcs of no length."""
        waiting = [source]
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            nodes.add(node)
            if node != self.root:
                waiting += [s for s, length in self.rest[node].items() if not length]

    @property
    def passed(self) -> set[int]:
        """The optional nodes on ways of no length from the root to terminals."""
        wanted: set[int] = set()
        for terminal in self.terminals:
            self._reach(wanted, terminal)
        return wanted - self.terminals - {self.root}

    def below(self, cost: int) -> list[list[tuple[int, int]]]:
        """The arcs that a tree cheaper than this may have."""
        room = cost - self.bound
        down, up = self._from_root(), self._to_terminals()
        affordable: list[list[tuple[int, int]]] = []
        for node, entering in enumerate(self.arcs):
            beyond = up[node]
            rest = self.rest[node]
            affordable.append(
                []
                if beyond is None
                else [
                    (cost, source)
                    for cost, source in entering
                    if (before := down[source]) is not None
                    and before + rest[source] + beyond < room
                ]
            )
        # What cannot be reached any more cannot be passed.
        gone = {
            n for n, entering in enumerate(affordable) if not entering and n not in self.terminals
        }
        return [[arc for arc in entering if arc[1] not in gone] for entering in affordable]

    def _from_root(self) -> list[int | None]:
        """The least remaining length from the root to each node."""
        lengths: list[int | None] = [None] * len(self.arcs) + [0]
        for node in self.order:
            ways = [
                before + rest
                for source, rest in self.rest[node].items()
                if (before := lengths[source]) is not None
            ]
            lengths[node] = min(ways, default=None)
        return lengths

    def _to_terminals(self) -> list[int | None]:
        """The least remaining length from each node to a terminal."""
        users = _users(self.arcs)
        lengths: list[int | None] = [None] * len(self.arcs)
        for node in reversed(self.order):
            ways = [
                beyond + self.rest[user][node]
                for user in users[node]
                if (beyond := lengths[user]) is not None
            ]
            lengths[node] = 0 if node in self.terminals else min(ways, default=None)
        return lengths
