"""Choices that rest on this engine's cost of panes."""

from __future__ import annotations

import pytest

from headrace.cost.panes import tree_pays
from headrace.optimizer.windows.closing import closing_graph
from headrace.plan.coverage import Coverage
from headrace.plan.windows import Hopping
from headrace.stats.load import Load

MINUTE = Hopping(60_000, 60_000)
SPARSE = Load(rows=5, milliseconds=600_000, keys=500)


@pytest.mark.parametrize("load", [None, SPARSE])
@pytest.mark.parametrize("panes", [5, 10_000_000])
def test_one_window_is_never_a_tree(load: Load | None, panes: int) -> None:
    window = Hopping(600_000, 300_000)
    pane = Hopping(300_000, 300_000)
    graph = closing_graph([window], pane, Coverage.PARTITIONED)
    assert not tree_pays(graph, pane, panes, load)


def test_a_tree_pays_only_for_many_panes() -> None:
    windows = [Hopping(60_000 * n, 60_000) for n in (10, 20, 40, 80)]
    graph = closing_graph(windows, MINUTE, Coverage.COVERED)
    assert max(graph.depth(w) for w in windows) > 0
    assert not tree_pays(graph, MINUTE, 100)
    assert tree_pays(graph, MINUTE, 10_000_000)
