"""How many rows came out of each step of a join, as DuckDB counted them while it ran.

DuckDB counts the rows of every operator in any case; a profile of these counts alone costs nothing
that can be measured. Steps are told apart by the names of the columns that they are joined by
(``definitions.join_tree``), which the profile repeats.

Like the kernel this goes to the executors by value.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: What is counted; times would have a clock read for each chunk of rows.
METRICS = ("operator.type", "operator.intermediate_rows", "operator.extra_info")

_STEP = re.compile(r"\b__(?:left|right)_(j\d+)_(\d+(?:_\d+)*)\b")

ProfiledStep = tuple[str, tuple[int, ...]]


def begin_counting(connection: Any) -> None:
    """From now on, the connection's statements are profiled."""
    listed = ", ".join(f"'{metric}'" for metric in METRICS)
    for setting in (
        f"tracked_metrics = [{listed}]",
        "profiling_coverage = 'ALL'",
        "enable_profiling = 'no_output'",
    ):
        connection.execute(f"SET {setting}")


def end_counting(connection: Any) -> None:
    connection.execute("PRAGMA disable_profiling")


def joined_rows(connection: Any) -> dict[ProfiledStep, int]:
    """Rows of the steps of the last statement, by the join and the inputs that were joined."""
    profile = connection.get_profiling_information()
    return rows_of_steps(json.loads(profile)) if profile else {}


def rows_of_steps(profile: Any) -> dict[ProfiledStep, int]:
    """The same of a profile.

    A step that is above others than its own parts was moved by DuckDB. Then what the steps of that
    join give is something else, and it is left out.
    """
    rows_by_step: dict[ProfiledStep, int] = {}
    moved: set[str] = set()

    def visit(node: Any) -> set[ProfiledStep]:
        below: set[ProfiledStep] = set()
        for child in node.get("children") or ():
            below |= visit(child)
        info = node.get("extra_info") or {}
        conditions = info.get("Conditions")
        if conditions is None or info.get("Join Type") != "INNER":
            return below
        text = conditions if isinstance(conditions, str) else " ".join(conditions)
        steps = {(join, tuple(map(int, ids.split("_")))) for join, ids in _STEP.findall(text)}
        for step in steps:
            own = [
                inputs for join, inputs in below | steps if join == step[0] and inputs != step[1]
            ]
            if not all(set(inputs) < set(step[1]) for inputs in own) or len(steps) > 1:
                moved.add(step[0])
            rows_by_step[step] = rows_by_step.get(step, 0) + int(node.get("intermediate_rows") or 0)
        return below | steps

    for node in profile.get("operator") or ():
        visit(node)
    return {step: rows for step, rows in rows_by_step.items() if step[0] not in moved}
