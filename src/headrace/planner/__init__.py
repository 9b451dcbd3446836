"""The planner: what is decided again and again while queries run, from what was learnt of them.

It is the second half of the optimizer, whose rules know the query alone. ``DECISIONS`` says what is
decided, when, from which figures, and by which settings; running a plan, explaining it and listing
its alternatives all go by it. Each decision can be turned off by name, like a rule.

Read ``names``, ``policy`` (what the user asks), ``statistics`` (what was learnt), ``choices`` (what
was chosen last) and ``cadence`` (how often it is looked at); ``live_query``, ``late_joiners`` and
``warm_up`` (who takes part, and from when); ``regret`` (plans that did not keep their promise);
then the decisions: ``merging``; ``pane_layout`` with ``grouping`` and ``stored_panes``;
``filter_sharing``; ``early_aggregation`` with ``joined_sets``; ``output_upkeep``; ``join_order``
with ``joined_rows``; ``probe_order``; ``shared_rows``.
``decision`` is what they have in common, ``explaining`` iterates them for people, and
``calibration`` knows what this machine takes for what.
"""

from __future__ import annotations

from headrace.merge.rewriting import Merging
from headrace.planner import (
    early_aggregation,
    filter_sharing,
    join_order,
    merging,
    names,
    output_upkeep,
    pane_layout,
    probe_order,
    shared_rows,
)
from headrace.planner.decision import Decision, When

__all__ = ["DECISIONS", "Decision", "When"]

DECISIONS: tuple[Decision, ...] = (
    Decision(
        names.MERGING,
        "which queries are computed as one, wholly or in part",
        When.QUERIES_CHANGE,
        ("streams",),
        ("merge.strategy", "merge.arithmetic", "merge.solverSteps"),
        Merging.update,
        "Merging",
        "merging",
        merging.describe,
    ),
    Decision(
        names.PANE_LAYOUT,
        "which panes are stored for the windows over a grouping, and by which other windows",
        When.NOW_AND_THEN,
        ("loads", "regrets"),
        ("windows.sharing", "windows.closing", "windows.costModel", "replan.leastGain"),
        pane_layout.plan_pane_layouts,
        "Windows",
        "windows",
        pane_layout.describe,
        pane_layout.alternatives,
    ),
    Decision(
        names.FILTER_SHARING,
        "which aggregates of a stream that differ in their filters alone share one store",
        When.QUERIES_CHANGE,
        ("loads",),
        ("windows.sharing",),
        filter_sharing.can_share_filters,
        "Filters",
        "filters",
        pane_layout.describe_filters,
    ),
    Decision(
        names.EARLY_AGGREGATION,
        "which inputs of a join are aggregated before it",
        When.EVERY_EPOCH,
        ("sets", "keys", "table_rows", "moving", "set_matches", "skews", "regrets"),
        ("early.costModel", "replan.leastGain"),
        early_aggregation.choose_early_inputs,
        "Early aggregation",
        "early",
        early_aggregation.describe,
        early_aggregation.alternatives,
    ),
    Decision(
        names.INCREMENTAL_OUTPUT,
        "whether the output of windows that move is kept up to date, or joined anew",
        When.EVERY_EPOCH,
        ("sets", "keys", "table_rows", "moving"),
        ("replan.leastGain",),
        output_upkeep.choose_output,
        "Early aggregation",
        "early",
        output_upkeep.describe,
        output_upkeep.alternatives,
    ),
    Decision(
        names.JOIN_ORDER,
        "in which order the joins of an epoch are computed",
        When.EVERY_EPOCH,
        ("joins", "keys", "matches", "frequent", "shares", "regrets"),
        ("joins.reorder", "joins.passes", "replan.leastGain"),
        join_order.choose_join_orders,
        "Joins",
        "joins",
        join_order.describe,
        join_order.alternatives,
    ),
    Decision(
        names.PROBE_ORDER,
        "in which order new rows of an input look up the other inputs of a join",
        When.EVERY_CYCLE,
        ("probes", "regrets"),
        (
            "probe.use",
            "probe.strategy",
            "probe.costModel",
            "probe.costs",
            "probe.cycle",
            "probe.history",
            "probe.smoothing",
            "replan.leastGain",
        ),
        probe_order.ProbeOrders.learn,
        "Joins",
        "joins",
        probe_order.describe,
        probe_order.alternatives,
    ),
    Decision(
        names.SHARED_ROWS,
        "whether rows that several read are computed once and written for all of them",
        When.EVERY_EPOCH,
        (),
        ("merge.sharedRows",),
        shared_rows.pays_to_share,
        "Shared rows",
        "shared_rows",
        shared_rows.describe,
    ),
)
