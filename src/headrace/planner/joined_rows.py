"""What came out of the steps of joins while they ran, and what follows from it.

How many rows a step gives says more of it than any count of keys: it knows which keys meet, and
which conditions hold together. It is kept as a share, of the combinations of rows whose times fit,
so that it holds for epochs of more or fewer rows as well, and for new rows of one input as for all.

A share that is not what it used to be tells that the data has changed. Then what was seen of other
steps before belongs to the past and is forgotten, and keys are counted in the next epoch. Otherwise
it is forgotten once it is as old as counts of keys get.

The orders that ran are held to what was predicted of them (``regret``): one that took more work
than the written one would have is left, and needs new evidence to be taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from headrace.cost.join_load import JoinLoad
from headrace.cost.join_sizes import mask_of
from headrace.optimizer.joins.search import cost_of, join_cost
from headrace.plan.join_graph import JoinGraph, inputs_of, order_text, pairs_of
from headrace.plan.nodes import Order
from headrace.planner.cadence import EVERY
from headrace.planner.choices import Choices
from headrace.planner.names import JOIN_ORDER
from headrace.planner.regret import Promise, Subject
from headrace.planner.statistics import Match, RuntimeStatistics

#: A share that is so many times what it was has changed,
SURPRISE = 2.0
#: if it is more than so many standard deviations of chance.
CHANCE = 4.0
#: That nothing came out is no proof that nothing ever does: it counts as so many rows.
NOTHING = 0.5


@dataclass(frozen=True)
class JoinRun:
    """One pass of a join in an epoch: how it was planned, and the rows ``found`` at its steps.

    ``driver`` is the input of whose new rows it is, or None. ``is_chosen`` says that the order was
    the planner's choice, which it is held to.
    """

    identity: str
    graph: JoinGraph
    driver: int | None
    order: Order
    written: Order
    load: JoinLoad
    is_chosen: bool
    found: Mapping[frozenset[int], int]

    @property
    def subject(self) -> Subject:
        return subject_of(self.identity, self.driver)

    @property
    def steps(self) -> list[frozenset[int]]:
        """The sets of inputs that its steps join, the largest last."""
        return sorted((frozenset(inputs_of(pair)) for pair in pairs_of(self.order)), key=len)

    @property
    def seen(self) -> dict[frozenset[int], float]:
        """Rows per millisecond."""
        return {
            step: max(float(self.found[step]), NOTHING) / self.load.stretch
            for step in self.steps
            if step in self.found
        }

    def with_seen(self, seen: Mapping[frozenset[int], float]) -> JoinLoad:
        return replace(self.load, seen={**self.load.seen, **seen})


def subject_of(identity: str, driver: int | None) -> Subject:
    return Subject(JOIN_ORDER, identity, "" if driver is None else str(driver))


def seen_rows(
    graph: JoinGraph, load: JoinLoad, shares: Mapping[frozenset[int], float]
) -> dict[frozenset[int], float]:
    """Rows per millisecond that steps give under a load, if they give these shares."""
    if not shares:
        return {}
    sizes = join_cost(graph, load).sizes
    return {inputs: share * sizes.combinations(mask_of(inputs)) for inputs, share in shares.items()}


def learn_joins(
    runs: Sequence[JoinRun], epoch: int, statistics: RuntimeStatistics, choices: Choices
) -> None:
    """Take in what an epoch saw, now that it is true."""
    for identity in dict.fromkeys(run.identity for run in runs):
        own = [run for run in runs if run.identity == identity]
        shares = _shares(own)
        if not shares:
            continue
        _note(identity, own, shares, epoch, statistics, choices)
        for run in own:
            if run.is_chosen and all(step in run.found for step in run.steps):
                _judge(run, statistics, choices)


def _shares(runs: Sequence[JoinRun]) -> dict[frozenset[int], float]:
    """Rows of each step over the combinations that there were, of all passes together."""
    rows: dict[frozenset[int], float] = {}
    combinations: dict[frozenset[int], float] = {}
    for run in runs:
        sizes = join_cost(run.graph, run.load).sizes
        for step in run.seen:
            rows[step] = rows.get(step, 0.0) + run.found[step]
            there = sizes.combinations(mask_of(step)) * run.load.stretch
            combinations[step] = combinations.get(step, 0.0) + there
    return {
        step: max(count, NOTHING) / combinations[step]
        for step, count in rows.items()
        if combinations[step] > 0
    }


def _note(
    identity: str,
    runs: Sequence[JoinRun],
    shares: Mapping[frozenset[int], float],
    epoch: int,
    statistics: RuntimeStatistics,
    choices: Choices,
) -> None:
    before = statistics.matches.get(identity, {})
    if any(_has_changed(run, before) for run in runs):
        before = {}
        choices.surprised.add(identity)
    elif any(step not in before for step in shares):
        # A step that never ran was planned by keys: whether these are still right is soon known.
        choices.surprised.update([identity] if any(map(_is_misjudged, runs)) else ())
    recent = {step: match for step, match in before.items() if epoch - match.epoch < EVERY}
    fresh = {step: Match(share, epoch) for step, share in shares.items()}
    statistics.matches[identity] = recent | fresh
    load = statistics.joins.get(identity)
    if load is not None:
        now = {step: match.share for step, match in statistics.matches[identity].items()}
        seen = seen_rows(runs[0].graph, load, now)
        statistics.joins[identity] = replace(load, seen=seen)


def _has_changed(run: JoinRun, matches: Mapping[frozenset[int], Match]) -> bool:
    """Whether a step gave another share than when it ran last."""
    before = {step: matches[step].share for step in run.seen if step in matches}
    expected = seen_rows(run.graph, run.load, before)
    return any(_differ(run, step, rows) for step, rows in expected.items())


def _is_misjudged(run: JoinRun) -> bool:
    """Whether a step gave other rows than were estimated."""
    sizes = join_cost(run.graph, run.load).sizes
    return any(_differ(run, step, sizes.rows(mask_of(step))) for step in run.seen)


def _differ(run: JoinRun, step: frozenset[int], rate: float) -> bool:
    seen, expected = float(run.found[step]), rate * run.load.stretch
    more, less = max(seen, expected), min(seen, expected)
    return more > SURPRISE * less and more - less > CHANCE * sqrt(more)


def _judge(run: JoinRun, statistics: RuntimeStatistics, choices: Choices) -> None:
    """Hold an order to its promise, by the rows that came out of its steps.

    How many results there are is not its fault: that is the same for every order, and so known of
    both in what is promised.
    """
    seen = run.seen
    result = frozenset(range(len(run.graph.leaves)))
    results = {step: rows for step, rows in seen.items() if step == result}
    costs = join_cost(run.graph, run.with_seen(seen))
    promise = Promise(
        cost_of(run.order, join_cost(run.graph, run.with_seen(results))),
        cost_of(run.written, costs),
    )
    if run.order == run.written:
        statistics.regrets.judge(run.subject, None, promise, cost_of(run.order, costs))
        return
    regret = statistics.regrets.judge(
        run.subject, plan_name(run.order), promise, cost_of(run.order, costs)
    )
    if regret is None:
        return
    names = run.graph.names
    whose = "" if run.driver is None else f" for new rows of {names[run.driver]}"
    before, after = order_text(run.order, names), order_text(run.written, names)
    choices.changes.append(f"join order{whose} {after} (was {before}, which {regret.text})")
    if run.driver is None:
        choices.join_orders[run.identity] = run.written


def plan_name(order: Order) -> str:
    """An order as the experience with it is kept: whichever side is which, it is the same work.

    >>> plan_name(((1, 0), 2)), plan_name((2, (0, 1)))
    ('((0 1) 2)', '((0 1) 2)')
    """
    if isinstance(order, int):
        return str(order)
    return f"({' '.join(_sides(order))})"


def _sides(order: tuple[Order, Order]) -> Iterator[str]:
    for side in sorted(order, key=lambda part: min(inputs_of(part))):
        yield plan_name(side)
