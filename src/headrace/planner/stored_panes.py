"""What panes have taken, held against what was promised of their layout, and what follows.

That the streams have changed is no fault of a layout, but a reason to look for another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.optimizer.windows.layout import CostModel, PaneLayout, layout_cost, own_panes
from headrace.planner.choices import Choices
from headrace.planner.names import PANE_LAYOUT
from headrace.planner.policy import PlannerPolicy
from headrace.planner.regret import CHANGE, Promise, Subject
from headrace.planner.statistics import RuntimeStatistics
from headrace.stats.load import Load


def layout_name(layout: PaneLayout) -> str:
    """A layout for people, and as the experience with it is kept."""
    return ", ".join(pane.name for pane in layout.panes)


def subject_of(family: str) -> Subject:
    return Subject(PANE_LAYOUT, family)


def is_guarded(policy: PlannerPolicy) -> bool:
    """Whether layouts are held to what they promise: not those of models that are there for
    comparison, which are left as they are published."""
    return policy.window_cost_model is CostModel.ENGINE


def promise_of(layout: PaneLayout, expected: Load, seen: Load) -> Promise:
    """What is predicted for a layout by what was expected, and for the written one, in which each
    window has panes of its own, by what is known."""
    return Promise(_seconds(layout, expected), _seconds(own_panes(layout.pane_of), seen))


def _seconds(layout: PaneLayout, load: Load) -> float:
    return layout_cost(layout, load).figure.number or 0.0


def learn_layouts(
    running: Mapping[str, PaneLayout],
    loads: Mapping[str, Load],
    statistics: RuntimeStatistics,
    choices: Choices,
    policy: PlannerPolicy,
) -> bool:
    """Take in what an epoch brought to each grouping; whether layouts should be looked at again.

    A layout is held to what was predicted for it of the rows that came, by their number and that of
    their keys, as the shortest panes tell it: how many groups these would make in the others.
    """
    due = False
    for family, load in loads.items():
        before = statistics.loads.get(family, load)
        jumped = statistics.note_load(family, load)
        layout = running.get(family)
        if layout is None or not is_guarded(policy):
            continue
        looked_at = choices.laid_out_for.get(family)
        due |= looked_at is None or _has_changed(layout, looked_at, statistics.loads[family])
        past = replace(before, seen=()) if jumped else before
        recalled = replace(load, seen=past.recalled(load))
        expected = replace(load, seen=past.recalled(replace(load, seen=load.seen[:1])))
        observed = _seconds(layout, recalled)
        plan = None if layout == own_panes(layout.pane_of) else layout_name(layout)
        promise = promise_of(layout, expected, recalled)
        due |= statistics.regrets.judge(subject_of(family), plan, promise, observed) is not None
    return due


def _has_changed(layout: PaneLayout, before: Load, now: Load) -> bool:
    """Whether what a layout or the written one takes in is not what it was."""

    def figures(load: Load) -> list[float]:
        lengths = [pane.length for pane in (*layout.panes, *own_panes(layout.pane_of).panes)]
        return [load.rows, load.milliseconds, *(load.stored(length) for length in lengths)]

    return any(
        max(one, other) > CHANGE * min(one, other)
        for one, other in zip(figures(before), figures(now), strict=True)
    )
