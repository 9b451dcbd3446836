"""What windows cost on this engine: seconds of an epoch, from rows, groups and jobs.

The published model (``factor_windows``) counts the items that aggregates take in, one by one. This
engine aggregates before it stores and merges before it emits, so what it pays for a window is
bounded by the groups in it, and every pass has a price of its own. Per epoch with N rows over T
seconds and K keys, a stretch of time of length l holds

    groups(l) = K (1 - exp(-N l / (T K)))

of them (as many as there are keys when rows are many, as many as rows when keys are many), and

    storing panes of length p             PASS + ROW N + GROUP g,         g = groups(p) T / p
    windows of (l, s) straight from them  READ g + MERGE g l / s + EMIT o
    the same through a tree               READ g + MERGE (what each level takes in)
                                          + LEVEL per level + EMIT o

with o for the groups that come out. A tree takes in fewer groups where windows overlap much; where
they tumble, it takes in more, since results go along through the levels above them.

The constants were fitted to the processor time of DuckDB in tasks, where most epochs run
(``docs/benchmarks.md`` says how); only their ratios matter. What Spark runs itself pays six times
as much for a pass, and for groups that change places between its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.plan.coverage import covering_multiplier
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping
from headrace.stats.load import Load

#: Seconds for a pass over an epoch's rows whatever their number, for each row and for each group.
PASS = 0.02
ROW = 0.05e-6
GROUP = 0.05e-6
#: Seconds for a stored group that is read again, for one that is merged into a window, and for one
#: that comes out.
READ = 0.02e-6
MERGE = 0.07e-6
EMIT = 0.28e-6
#: Seconds for a level of a tree: one more aggregation in the same statement.
LEVEL = 0.006


@dataclass(frozen=True)
class PaneCost:
    """Costs of panes and windows under one load, in seconds of an epoch."""

    load: Load

    def stored(self, pane: Hopping) -> float:
        """Groups that an epoch appends to panes of this length."""
        return self.load.stored(pane.length)

    def store(self, pane: Hopping) -> float:
        return PASS + ROW * self.load.rows + GROUP * self.stored(pane)

    def emitted(self, window: Hopping) -> float:
        """Groups of a window that come out of an epoch."""
        return self.load.milliseconds / window.slide * self.load.groups(window.length)

    def _read(self, pane: Hopping, windows: Sequence[Hopping]) -> float:
        """Groups that are read to close windows: those of the epoch, and the past of the longest.

        Few windows close in an epoch that is shorter than their slide.
        """
        epoch = self.load.milliseconds
        longest = max(w.length for w in windows)
        often = min(1.0, epoch / min(w.slide for w in windows))
        return often * self.load.groups(pane.length) * (epoch + longest) / pane.length

    def flat(self, pane: Hopping, windows: Sequence[Hopping]) -> float:
        """Closing windows straight from panes.

        Panes of the past are read again and again while windows are open, but each is merged into
        each of its windows once, when that closes.
        """
        merged = self.stored(pane) * sum(w.length / w.slide for w in windows)
        out = sum(self.emitted(w) for w in windows)
        return READ * self._read(pane, windows) + MERGE * merged + EMIT * out


def comes_out_larger(windows: Iterable[Hopping], pane: Hopping) -> bool:
    """Whether windows have more groups than the panes they are made of.

    Then it is the panes that should change places between Spark's tasks, and not the groups.
    """
    return sum(pane.length / window.slide for window in windows) > 1.2


def tree_pays(graph: WindowGraph, pane: Hopping, panes: int, load: Load | None = None) -> bool:
    """Whether this many stored panes are better merged through the graph than straight.

    Without a load, every pane is taken to have the same groups. A graph that computes each window
    straight from panes is no tree.
    """
    levels = _height(graph)
    if levels == 0:
        return False
    straight = sum(w.length / w.slide for w in graph.asked)
    saved = MERGE * (straight - _taken_in(graph, pane, load))
    return panes * saved > LEVEL * levels


def _taken_in(graph: WindowGraph, pane: Hopping, load: Load | None) -> float:
    """What all levels of a graph take in, as a multiple of the panes."""
    taken = 0.0
    for edge in graph.edges:
        per_pane = pane.length / edge.window.slide
        if edge.source is None:
            taken += per_pane * edge.window.length / pane.length
        else:
            each = covering_multiplier(edge.window, edge.source) * _groups(edge.source, pane, load)
            taken += per_pane * each
        if edge.window in graph.asked:
            # Results go along through the levels above the one that made them.
            above = _height(graph) - graph.depth(edge.window)
            taken += per_pane * _groups(edge.window, pane, load) * above
    return taken


def _groups(window: Hopping, pane: Hopping, load: Load | None) -> float:
    """Groups of a window, as a multiple of those of a pane."""
    return 1.0 if load is None else load.groups(window.length) / load.groups(pane.length)


def _height(graph: WindowGraph) -> int:
    return max(graph.depth(edge.window) for edge in graph.edges)
