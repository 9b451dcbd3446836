"""What plans cost: ``cost`` is the value and the one comparison, ``rows`` the flow of rows.

The models are one file each: ``factor_windows`` and ``panes`` (windows as published, and on this
engine), ``window_joins`` (by ``join_sizes``, of a ``join_load``, whose missing ``key_counts`` are
derived), ``probing``, ``early_aggregation`` with ``moving_output``, and ``jobs`` for what Spark
takes before any work is done.
"""

from headrace.cost.cost import Cost, cheaper, ranked
from headrace.cost.rows import Flow, flow_cost, row_flow

__all__ = ["Cost", "Flow", "cheaper", "flow_cost", "ranked", "row_flow"]
