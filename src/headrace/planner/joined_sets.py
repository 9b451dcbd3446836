"""What joins of aggregation sets gave and took while they ran, and what follows from it.

How many rows come out is kept as a factor, of what numbers of keys alone would tell, for each
choice of inputs that ran. A factor that is not what it used to be tells that the data has changed;
then what was seen of other choices is forgotten, as it is once it is as old as counts of keys get.
Until then it comes nearer, by half the way in each epoch, to what the choice that runs tells of
them.

A choice is held to what the cost model promises of it for the rows that came. The model does not
know all: extremes that leave a window are looked for again among its rows, and a set has entries of
several epochs. If a choice takes more work than was predicted for aggregating nothing early, it is
left (``regret``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from headrace.cost.early_aggregation import InputFlow
from headrace.planner.cadence import EVERY
from headrace.planner.choices import Choices, EarlyInputs
from headrace.planner.early_aggregation import (
    ChoiceCosts,
    EarlyChoice,
    SetLoads,
    choice_name,
    early_text,
    is_guarded,
    match_of,
    subject_of,
)
from headrace.planner.joined_rows import NOTHING, SURPRISE
from headrace.planner.regret import Promise
from headrace.planner.statistics import RuntimeStatistics, SetMatch
from headrace.stats.load import SetWork

_LATE = frozenset[int]()


@dataclass(frozen=True)
class SetJoinRun:
    """A join of sets in an epoch: about how many ``rows`` each input had, those that were
    ``expected`` of it by numbers of keys, and those ``found`` at its steps, by the inputs joined.
    """

    identity: str
    rows: Sequence[float]
    expected: float
    found: Mapping[frozenset[int], int]

    @property
    def results(self) -> int | None:
        """The rows that came out, if they were counted."""
        return self.found.get(frozenset(range(len(self.rows))))


def learn_set_joins(
    runs: Sequence[SetJoinRun],
    work: Mapping[str, SetWork],
    epoch: int,
    statistics: RuntimeStatistics,
    choices: Choices,
) -> None:
    """Take in what an epoch saw, now that it is true."""
    for identity, chosen in list(choices.early.items()):
        if chosen.epoch == epoch and chosen.choice is not None:
            _note([run for run in runs if run.identity == identity], chosen, statistics)
            if chosen.choice.forced is None and is_guarded(chosen.choice.policy):
                _judge(chosen, chosen.choice, work, statistics, choices)


def _note(runs: Sequence[SetJoinRun], chosen: EarlyInputs, statistics: RuntimeStatistics) -> None:
    results = [run.results for run in runs if run.results is not None]
    expected = sum(run.expected for run in runs if run.results is not None)
    if chosen.choice is None or not results or expected <= 0:
        return
    identity, epoch = chosen.choice.identity, chosen.epoch
    factor = max(float(sum(results)), NOTHING) / expected
    matches = statistics.set_matches.get(identity, {})
    before = matches.get(chosen.inputs)
    if before is not None and not 1 / SURPRISE <= factor / before.factor <= SURPRISE:
        matches = {}
    fresh = {chosen.inputs: factor}
    stores = enumerate(one.store for one in chosen.choice.sets)
    skews = {index: statistics.skews.get(store, 1.0) for index, store in stores}
    recent = {
        early: SetMatch(sqrt(one.factor * match_of(early, fresh, skews)), one.epoch)
        for early, one in matches.items()
        if epoch - one.epoch < EVERY
    }
    statistics.set_matches[identity] = {**recent, chosen.inputs: SetMatch(factor, epoch)}


def _judge(
    chosen: EarlyInputs,
    choice: EarlyChoice,
    work: Mapping[str, SetWork],
    statistics: RuntimeStatistics,
    choices: Choices,
) -> None:
    if chosen.loads is None:
        return
    tables = {choice.sets[i].store: rows for i, (_, rows) in chosen.loads.table_rows.items()}
    now = choice.loads(statistics, lambda store: round(tables[store]))
    if now is None:
        return
    done = {i: work[one.store] for i, one in enumerate(choice.sets) if one.store in work}
    if not chosen.inputs - now.table_rows.keys() <= done.keys():
        # An epoch that began sets anew, or had no rows of them, says nothing of the next one.
        return
    now = _of_this_epoch(now, done)
    before = {early: f for early, f in chosen.loads.matches.items() if early == chosen.inputs}
    costs, expected = _costs(choice, now), _costs(choice, replace(now, matches=before))
    flows = [
        _observed(flow, done[index]) if index in chosen.inputs & done.keys() else flow
        for index, flow in enumerate(costs.flows)
    ]
    observed = costs.of_flows(chosen.inputs, flows)
    promise = Promise(expected.of(chosen.inputs), costs.of(_LATE))
    plan = choice_name(chosen.inputs) if chosen.inputs else None
    subject = subject_of(choice.identity)
    regret = statistics.regrets.judge(subject, plan, promise, observed)
    if regret is not None:
        choices.early[choice.identity] = replace(chosen, inputs=_LATE)
        choices.changes.append(
            f"early aggregation of {early_text(choice.shape, _LATE)} again "
            f"(was {early_text(choice.shape, chosen.inputs)}, which {regret.text})"
        )


def _costs(choice: EarlyChoice, loads: SetLoads) -> ChoiceCosts:
    tuning, model = choice.policy.early_tuning, choice.policy.early_cost_model
    return ChoiceCosts(choice.shape, loads, tuning, model)


def _of_this_epoch(now: SetLoads, done: Mapping[int, SetWork]) -> SetLoads:
    """What is known of keys, with the rows that came."""
    sets = {
        index: replace(load, rows=done[index].rows, milliseconds=done[index].milliseconds)
        if index in done
        else load
        for index, load in now.sets.items()
    }
    return replace(now, sets=sets)


def _observed(flow: InputFlow, done: SetWork) -> InputFlow:
    """An input's rows as they were grouped and stored."""
    stored = done.stored / done.milliseconds
    return replace(flow, rows=done.grouped / done.milliseconds, stored_early=stored)
