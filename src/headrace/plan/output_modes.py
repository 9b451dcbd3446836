"""Which output modes a plan can be written in.

What decides are the aggregates whose rows come out as they are: those below only filters,
projections, unions and joins with tables. Inputs of other operators hand on final rows in any mode.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.plan.join_graph import has_table
from headrace.plan.nodes import Aggregate, Filter, Join, Node, OutputMode, Project, Sink, Union
from headrace.plan.windows import Landmark, Session


def output_modes(plan: Node) -> frozenset[OutputMode]:
    """The modes that every part of the plan allows; none where parts contradict each other."""
    modes = frozenset(OutputMode)
    for aggregate in _outermost_aggregates(plan):
        if isinstance(aggregate.windows[0], Landmark):
            # It never ends, so its results are never final.
            modes -= {OutputMode.APPEND}
        if isinstance(aggregate.windows[0], Session):
            # Sessions merge, and what was given out for one of them would have to be taken back.
            modes -= {OutputMode.UPDATE}
    return modes


def natural_mode(plan: Node) -> OutputMode:
    """The mode of a query that names none: final results, unless there are none."""
    return OutputMode.APPEND if OutputMode.APPEND in output_modes(plan) else OutputMode.UPDATE


def _outermost_aggregates(node: Node) -> Iterator[Aggregate]:
    match node:
        case Aggregate():
            yield node
        case Filter() | Project() | Union() | Sink():
            for child in node.inputs:
                yield from _outermost_aggregates(child)
        case Join() if has_table(node):
            for child in node.inputs:
                yield from _outermost_aggregates(child)
        case _:
            return
