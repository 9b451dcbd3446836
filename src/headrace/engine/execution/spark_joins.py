"""How many rows came out of each step of a join, as Spark counted them while it ran.

Spark counts the rows of every operator in any case, and keeps the counts of its last executions for
whoever looks at them. Steps are told apart by the names of the columns that they are joined by
(``definitions.join_tree``), which the plan repeats. Counts arrive a moment after the rows do; who
cannot have them soon goes without.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

#: Executions that are looked through, the last ones: streams run theirs at the same time.
MOST_EXECUTIONS = 16
#: So long an execution that has ended is waited for.
MOST_SECONDS = 0.25
_POLL = 0.002
_ROWS = "number of output rows"
_STEP = re.compile(r"\b__(?:left|right)_(j\d+)_(\d+(?:_\d+)*)\b")

Step = tuple[str, tuple[int, ...]]


class SparkJoins:
    """What Spark's executions tell of the joins in them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def last(self) -> int:
        """The execution that began last."""
        try:
            ids = [int(one.executionId()) for one in self._recent(1)]
        except Exception:
            return -1
        return max(ids, default=-1)

    def rows_since(self, last: int) -> dict[Step, int]:
        """Rows of the steps of joins that ran after an execution; nothing where Spark does not
        tell."""
        rows_of_steps: dict[Step, int] = {}
        try:
            deadline = time.monotonic() + MOST_SECONDS
            for execution in self._recent(MOST_EXECUTIONS):
                if int(execution.executionId()) > last:
                    for step, rows in self._steps(int(execution.executionId()), deadline):
                        # A plan may have a step twice, which gives the same each time.
                        rows_of_steps[step] = max(rows, rows_of_steps.get(step, 0))
        except Exception:
            # This is a developer's interface of Spark, and rows that are not counted are no fault.
            return {}
        return rows_of_steps

    @property
    def _store(self) -> Any:
        return self._spark._jsparkSession.sharedState().statusStore()

    def _recent(self, most: int) -> Iterator[Any]:
        store = self._store
        executions = store.executionsList(max(0, int(store.executionsCount()) - most), most)
        for place in range(executions.size()):
            yield executions.apply(place)

    def _steps(self, execution: int, deadline: float) -> Iterator[tuple[Step, int]]:
        store = self._store
        if not self._joins(execution):
            return
        while not store.execution(execution).get().completionTime().isDefined():
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL)
        counted = store.executionMetrics(execution)
        # Adaptive execution has changed the plan meanwhile.
        for step, node in self._joins(execution):
            metrics = node.metrics()
            for place in range(metrics.size()):
                metric = metrics.apply(place)
                if metric.name() == _ROWS:
                    text = counted.get(metric.accumulatorId())
                    if text.isDefined():
                        yield step, int(str(text.get()).replace(",", ""))

    def _joins(self, execution: int) -> list[tuple[Step, Any]]:
        """The operators of an execution's plan that join, with the steps that they are."""
        nodes = self._store.planGraph(execution).allNodes()
        nodes_of_steps = []
        for place in range(nodes.size()):
            node = nodes.apply(place)
            steps = {
                (join, tuple(map(int, inputs.split("_"))))
                for join, inputs in _STEP.findall(str(node.desc()))
            }
            if len(steps) == 1 and "Join" in str(node.name()):
                nodes_of_steps.append((steps.pop(), node))
        return nodes_of_steps
