"""What plans cost: ``cost`` is the value and the one comparison, ``rows`` the flow of rows.

The cost models of the papers are one file each beside these.
"""

from headrace.cost.cost import Cost, cheaper, ranked
from headrace.cost.rows import Flow, flow_cost, row_flow

__all__ = ["Cost", "Flow", "cheaper", "flow_cost", "ranked", "row_flow"]
