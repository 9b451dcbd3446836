"""The graph by which windows are computed from stored panes.

Paper: Factor Windows, Section III-C.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.steiner import Searched, best_graph
from headrace.plan.coverage import Coverage
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping


def closing_graph(windows: Iterable[Hopping], pane: Hopping, coverage: Coverage) -> WindowGraph:
    """The cheapest graph over panes: what it computes "from rows" is computed from panes.

    A window that is the pane itself is computed from it as from one row.
    """
    return closing_search(windows, pane, coverage).graph


def closing_search(windows: Iterable[Hopping], pane: Hopping, coverage: Coverage) -> Searched:
    """The graph, and how far it can be from the best one."""
    return _search(frozenset(windows), pane, coverage)


@lru_cache(maxsize=1_000)
def _search(windows: frozenset[Hopping], pane: Hopping, coverage: Coverage) -> Searched:
    # Compilations come often and with the same windows; for twenty of them, the search takes up to
    # 0.2 s.
    # With panes for units of time, factor windows are unions of panes as well.
    costs = PaperCost.of(windows, unit=pane.length)
    return best_graph(sorted(windows, key=_size), coverage, costs)


def _size(window: Hopping) -> tuple[int, int, int]:
    return window.length, window.slide, window.offset
