"""What decisions are called: in settings, in ``explain``, in the documents."""

from __future__ import annotations

MERGING = "merging"
PANE_LAYOUT = "pane_layout"
FILTER_SHARING = "filter_sharing"
#: The rule that marks aggregates, which is part of the optimizer, has this name too: without the
#: mark there is nothing to choose.
EARLY_AGGREGATION = "early_aggregation"
INCREMENTAL_OUTPUT = "incremental_output"
JOIN_ORDER = "join_order"
PROBE_ORDER = "probe_order"
SHARED_ROWS = "shared_rows"

DECISION_NAMES = (
    MERGING,
    PANE_LAYOUT,
    FILTER_SHARING,
    EARLY_AGGREGATION,
    INCREMENTAL_OUTPUT,
    JOIN_ORDER,
    PROBE_ORDER,
    SHARED_ROWS,
)
