"""Trees over the inputs of a graph of joins: the cheapest of all, or the best of few steps.

*Exact*: dynamic programming over connected sets, bushy trees included. Of n inputs it looks at up
to 3^n / 2 ways to split a set.

*Bounded*, for more inputs than that is good for, in three parts:

- beginnings: one input after the other from each input, always the cheapest next; and the two parts
  whose join is cheapest, again and again;
- the best tree along a line: inputs are put in a row, as a beginning has them, and of all trees
  that keep them so, bushy ones included, the cheapest is found by dynamic programming over
  stretches (after Neumann and Radke, "Adaptive Optimization of Very Large Join Queries", SIGMOD
  2018);
- polishing: a few subtrees at a time are taken for inputs, and the exact search orders those, until
  nothing gets better (after Kossmann and Stocker, "Iterative dynamic programming", TODS 25(1)).

What bounds it is a number of steps, each of them one way to join two sets, and never the time: the
same graph and load give the same order on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.cost.window_joins import JoinCost
from headrace.plan.join_graph import inputs_of
from headrace.plan.nodes import Order

#: Up to so many inputs all trees are compared.
MOST_INPUTS = 10
#: Steps of the bounded search: about as many as the exact one takes for ten inputs.
MOST_STEPS = 30_000
#: How many beginnings are put in a row, and how many subtrees are polished at once.
LINES, POLISHED = 4, 7


@dataclass(frozen=True)
class CostedOrder:
    """An order of some inputs and the cost of all its joins."""

    cost: float
    order: Order
    mask: int


@dataclass
class Enumeration:
    """One search. ``tied`` says whether two sets of inputs may be joined at all."""

    costs: JoinCost
    tied: Callable[[int, int], bool]
    most_steps: int = MOST_STEPS
    steps: int = field(default=0, init=False)

    def exact(self) -> Order | None:
        """The cheapest of all orders; None if some input cannot be joined."""
        cheapest = self._cheapest(self._inputs())
        return None if cheapest is None else cheapest.order

    def bounded(self) -> Order | None:
        """A cheap order, in not many more than ``most_steps``."""
        beginnings = [self._one_after_the_other(tree) for tree in self._inputs()]
        beginnings.append(self._cheapest_pairs())
        trees = sorted((tree for tree in beginnings if tree is not None), key=lambda t: t.cost)
        if not trees:
            return None
        best = trees[0]
        for beginning in trees[:LINES]:
            along = self._along(inputs_of(beginning.order))
            if along is not None and along.cost < best.cost:
                best = along
        return self._polished(best).order

    def _inputs(self) -> list[CostedOrder]:
        return [CostedOrder(0.0, i, 1 << i) for i in range(len(self.costs.graph.leaves))]

    def _joined(self, left: CostedOrder, right: CostedOrder) -> CostedOrder:
        self.steps += 1
        # The input that comes first in the query is on the left.
        if right.mask & -right.mask < left.mask & -left.mask:
            left, right = right, left
        cost = left.cost + right.cost + self.costs.join(left.mask, right.mask)
        return CostedOrder(cost, (left.order, right.order), left.mask | right.mask)

    # All of them

    def _cheapest(self, parts: Sequence[CostedOrder]) -> CostedOrder | None:
        """The best tree over some subtrees, from small sets of them to large ones."""
        best: dict[int, CostedOrder] = {1 << place: tree for place, tree in enumerate(parts)}
        for chosen in range(1, 1 << len(parts)):
            if chosen in best:
                continue
            # Each split once: the lowest part is on the left.
            rest = chosen & (chosen - 1)
            split = rest
            cheapest: CostedOrder | None = None
            while split:
                left, right = best.get(chosen ^ split), best.get(split)
                split = (split - 1) & rest
                if left is None or right is None or not self.tied(left.mask, right.mask):
                    continue
                self.steps += 1
                if cheapest is None or left.cost + right.cost < cheapest.cost:
                    joined = self._joined(left, right)
                    self.steps -= 1
                    if cheapest is None or joined.cost < cheapest.cost:
                        cheapest = joined
            if cheapest is not None:
                best[chosen] = cheapest
        return best.get((1 << len(parts)) - 1)

    # Few of them

    def _one_after_the_other(self, first: CostedOrder) -> CostedOrder | None:
        """The cheapest next input, again and again."""
        tree, rest = first, [part for part in self._inputs() if part.mask != first.mask]
        while rest:
            choices = [
                (self._joined(tree, part), part) for part in rest if self.tied(tree.mask, part.mask)
            ]
            if not choices:
                return None
            tree, added = min(choices, key=lambda choice: choice[0].cost)
            rest.remove(added)
        return tree

    def _cheapest_pairs(self) -> CostedOrder | None:
        """The two parts whose join costs least, again and again."""
        parts = self._inputs()
        added: dict[tuple[int, int], CostedOrder] = {}
        while len(parts) > 1:
            choices = []
            for place, one in enumerate(parts):
                for other in parts[place + 1 :]:
                    if not self.tied(one.mask, other.mask):
                        continue
                    pair = one.mask, other.mask
                    if pair not in added:
                        added[pair] = self._joined(one, other)
                    joined = added[pair]
                    choices.append((joined.cost - one.cost - other.cost, joined, one, other))
            if not choices:
                return None
            _, joined, one, other = min(choices, key=lambda choice: choice[0])
            parts = [part for part in parts if part not in (one, other)] + [joined]
        return parts[0]

    def _along(self, line: Sequence[int]) -> CostedOrder | None:
        """The best tree whose inputs, from left to right, are in this order."""
        count = len(line)
        best: dict[tuple[int, int], CostedOrder] = {
            (place, place + 1): CostedOrder(0.0, index, 1 << index)
            for place, index in enumerate(line)
        }
        for length in range(2, count + 1):
            if self.steps > self.most_steps:
                return None
            for begin in range(count - length + 1):
                end = begin + length
                for middle in range(begin + 1, end):
                    left, right = best.get((begin, middle)), best.get((middle, end))
                    if left is None or right is None or not self.tied(left.mask, right.mask):
                        continue
                    joined, best_so_far = self._joined(left, right), best.get((begin, end))
                    if best_so_far is None or joined.cost < best_so_far.cost:
                        best[begin, end] = joined
        return best.get((0, count))

    def _polished(self, tree: CostedOrder) -> CostedOrder:
        """Ordered anew, a few subtrees at a time, from the root on."""
        better = True
        while better:
            better = False
            for top in self._subtrees(tree):
                if self.steps > self.most_steps:
                    return tree
                parts = self._parts(top)
                cheaper = self._cheapest(parts) if len(parts) > 2 else None
                if cheaper is not None and cheaper.cost < top.cost * (1 - 1e-9):
                    tree = self._measured(_replaced(tree.order, top.order, cheaper.order))
                    better = True
                    break
        return tree

    def _measured(self, order: Order) -> CostedOrder:
        if isinstance(order, int):
            return CostedOrder(0.0, order, 1 << order)
        return self._joined(self._measured(order[0]), self._measured(order[1]))

    def _subtrees(self, tree: CostedOrder) -> list[CostedOrder]:
        """The tree and all below it that join something, outermost first."""
        subtrees = [tree] if not isinstance(tree.order, int) else []
        place = 0
        while place < len(subtrees):
            order = subtrees[place].order
            assert not isinstance(order, int)
            subtrees += [self._measured(side) for side in order if not isinstance(side, int)]
            place += 1
        return subtrees

    def _parts(self, tree: CostedOrder) -> list[CostedOrder]:
        """A tree as a few subtrees: the one with the most inputs is split, and again."""
        parts = [tree]
        while len(parts) < POLISHED:
            largest = max(parts, key=lambda part: part.mask.bit_count())
            if isinstance(largest.order, int):
                break
            parts.remove(largest)
            parts += [self._measured(side) for side in largest.order]
        return sorted(parts, key=lambda part: part.mask & -part.mask)


def _replaced(order: Order, old: Order, new: Order) -> Order:
    if order == old:
        return new
    if isinstance(order, int):
        return order
    return _replaced(order[0], old, new), _replaced(order[1], old, new)
