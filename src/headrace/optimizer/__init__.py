"""The optimizer: what is decided once, from the query alone.

``STAGES`` is the architecture: what runs, in which order, and why there. Each rule is one file in
``rules``, named like the rule; ``rule`` says what one is, ``driver`` runs them, checks them and
keeps the trace; ``safety`` says which expressions may move.
``demands`` are what a query asks for by hints, and ``advice`` is what its user could change.

The other rooms are searches, by which the planner decides while queries run: ``windows`` (which
window is computed from which), ``joins`` (which orders are valid, and which is best), ``probing``
(in which order rows probe), ``early`` (which aggregates may move below a join).
"""

from __future__ import annotations

from headrace.optimizer.driver import (
    Firing,
    Optimized,
    Trace,
    apply_rule,
    run_stages,
)
from headrace.optimizer.joins.steps import RULES as JOIN_RULES
from headrace.optimizer.rule import Rule, Stage
from headrace.optimizer.rules import (
    early_aggregation,
    fold_constants,
    largest_window_only,
    make_outer_join_inner,
    merge_filters,
    merge_projection_into_aggregate,
    merge_projections,
    move_table_from_between,
    prune_columns,
    pull_projection_above_join,
    push_filter_into_join,
    push_filter_through_aggregate,
    push_filter_through_project,
    push_filter_through_union,
    remove_trivial_projection,
)
from headrace.plan.nodes import Node

__all__ = [
    "JOIN_RULES",
    "RULES",
    "STAGES",
    "Firing",
    "Optimized",
    "Rule",
    "Stage",
    "Trace",
    "apply_rule",
    "optimize",
]

STAGES: tuple[Stage, ...] = (
    Stage(
        "normalise",
        "first, so that every later rule meets one spelling: of a condition, and of joins, between "
        "which nothing stands that goes row by row",
        (
            fold_constants.RULE,
            push_filter_through_project.RULE,
            pull_projection_above_join.RULE,
            move_table_from_between.RULE,
            merge_filters.RULE,
            merge_projections.RULE,
            merge_projection_into_aggregate.RULE,
        ),
    ),
    Stage(
        "push filters and columns down",
        "before anything is shared or costed: what is never read costs nothing",
        (
            push_filter_through_project.RULE,
            push_filter_through_union.RULE,
            # Before conditions move into a join, which is what its kind allows.
            make_outer_join_inner.RULE,
            push_filter_into_join.RULE,
            push_filter_through_aggregate.RULE,
            merge_filters.RULE,
            merge_projections.RULE,
            # A filter that has gone on leaves a projection next to an aggregate.
            merge_projection_into_aggregate.RULE,
            # Columns replaced by what they stand for bring new constants.
            fold_constants.RULE,
            prune_columns.RULE,
            # Last, when it shows that nobody reads the ends that a join hands on.
            largest_window_only.RULE,
            remove_trivial_projection.RULE,
        ),
    ),
    Stage(
        "early aggregation",
        "after filters and columns have settled: what is grouped below a join is what is left",
        (early_aggregation.RULE,),
    ),
)

#: Every rule by its name.
RULES: dict[str, Rule] = {rule.name: rule for stage in STAGES for rule in stage.rules}


def optimize(plan: Node, disabled: frozenset[str] = frozenset()) -> Optimized:
    """The plan after all stages; rules named in ``disabled`` do not run.

    Rules about the order of joins rewrite nothing here: an order is chosen in each epoch.
    """
    return run_stages(plan, STAGES, disabled - frozenset(JOIN_RULES))
