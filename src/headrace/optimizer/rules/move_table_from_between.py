"""A join with a table moves out from between two joins of one tree.

    Join (TableJoin (Join a, b), t) c   →   TableJoin (Join (Join a, b) c), t

A table keeps no state and no row is late for it, so where it is joined is no matter for what comes
out; but between two joins of streams it would make two operators of them, with watermarks of their
own. This decides which rows are late and cannot be turned off, as ``pull_projection_above_join``.

Right where the join above does not read the table's columns. If it does, the table goes below, to
the one input whose plain columns it is joined by. Refused where it is joined by columns of several
inputs, or by something computed, which might raise for rows without a partner.
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.plan.nodes import Join, Node
from headrace.plan.tables_between import without_table_between


def move_table_from_between(node: Node) -> Node | None:
    return without_table_between(node) if isinstance(node, Join) else None


RULE = Rule("move_table_from_between", move_table_from_between, always=True)
