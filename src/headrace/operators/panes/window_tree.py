"""Windows computed from windows: a graph over panes as one chain of aggregations.

Level by level, each row is handed to the windows that are computed from it. Spark would compute a
window that feeds several others once for each of them, so there is one chain for the whole graph:
what was asked for goes along as a copy of itself until the end. All levels group by the keys, so
the rows change places once, before the first.

Paper: Factor Windows, Section III-C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from headrace.definitions.definition import (
    Sql,
    all_of,
    call,
    column,
    distributed,
    keep,
    named,
    select,
)
from headrace.definitions.windows import (
    WINDOW_INDEX,
    WINDOW_START,
    Ends,
    Offer,
    length_of_offer,
    offers,
    offers_by_number,
    start_of_offer,
)
from headrace.operators.panes.pane_store import PANE
from headrace.operators.panes.partial_rows import merge_groups
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping

# A row's window before it is handed on, and what an offer says of it: its length, and whether the
# row it makes is a result (and not on its way to one).
_FROM = "__from"
_FROM_START = "__from_start"
_FROM_LENGTH = "__from_length"
_RESULT = "__result"


def close_by_tree(
    panes: exp.Query,
    keys: Sequence[str],
    merged: Mapping[str, Sql],
    pane: Hopping,
    graph: WindowGraph,
    wanted: Mapping[int, Hopping],
    ends: Ends,
) -> exp.Query:
    """Groups of the windows of interest, merged: keys, ``__window``, ``__start`` and partials.

    ``graph`` tells what is computed from what, its rows being the panes; ``asked`` numbers the
    windows that the query wants.
    """
    tree = _Tree(pane, graph, wanted, ends)
    placed = select(
        panes,
        {
            **keep(keys),
            WINDOW_INDEX: exp.Literal.number(tree.pane_number),
            WINDOW_START: column(PANE),
            **keep(merged),
        },
    )
    rows: exp.Query = distributed(placed, keys) if keys else placed
    groups = [*keys, WINDOW_INDEX, WINDOW_START]
    for level in range(tree.height + 1):
        handed_on = _handed_on(rows, tree.offers(level), [*keys, *merged], ends)
        rows = merge_groups(handed_on, groups, merged)
    return rows


class _Tree:
    """The graph with numbers for windows: those of the query, and others for factor windows."""

    def __init__(
        self, pane: Hopping, graph: WindowGraph, wanted: Mapping[int, Hopping], ends: Ends
    ) -> None:
        self._graph = graph
        self._bounds = ends.bounds()
        self._pane = pane
        self._asked = frozenset(wanted.values())
        numbers = {window: number_ for number_, window in wanted.items()}
        first_free = max(wanted) + 1
        self._numbers = numbers | {w: first_free + i for i, w in enumerate(graph.factors)}
        self.pane_number = first_free + len(graph.factors)
        self.height = max(graph.depth(edge.window) for edge in graph.edges)

    def offers(self, level: int) -> list[list[Offer]]:
        """What the rows of each window are offered to on a level, by the window's number."""
        by_level: list[list[Offer]] = [[] for _ in range(self.pane_number + 1)]
        if level == 0:
            for window in self._graph.roots:
                by_level[self.pane_number] += self._offers(window, self._pane)
            return by_level
        for window, number_ in self._numbers.items():
            depth = self._graph.depth(window)
            if depth < level and window in self._asked:
                # The result itself goes along. Its start is one of its own starts: back by none.
                by_level[number_] += self._offers(window, window)[:1]
            if depth == level - 1:
                for user in self._graph.derived(window):
                    by_level[number_] += self._offers(user, window)
        return by_level

    def _offers(self, window: Hopping, source: Hopping) -> list[Offer]:
        # A window that others are computed from is needed whole, also where it is not of interest.
        is_result = window == source or not self._graph.derived(window)
        more = {_FROM_LENGTH: source.length, _RESULT: int(is_result), **self._bounds}
        return offers(self._numbers[window], window, **more)


def _handed_on(
    rows: exp.Query, offered: list[list[Offer]], others: Sequence[str], ends: Ends
) -> exp.Query:
    """Rows placed into the windows that they were offered to and lie in."""
    before = select(
        rows,
        {**keep(others), _FROM: column(WINDOW_INDEX), _FROM_START: column(WINDOW_START)},
    )
    # One constant for all windows, indexed by the row's own: see ``expansion``.
    mine = exp.Bracket(this=offers_by_number(offered), expressions=[column(_FROM)])
    generated = select(before, None).select(call("inline", mine), copy=False)
    start = start_of_offer(column(_FROM_START))
    placed = select(generated, None).select(named(start, WINDOW_START), copy=False)
    end = column(_FROM_START) + column(_FROM_LENGTH)
    conditions: list[Sql] = [end <= column(WINDOW_START) + length_of_offer()]
    of_interest = all_of(ends.conditions())
    if of_interest is not None:
        on_its_way = column(_RESULT).eq(0)
        conditions.append(exp.paren(exp.or_(on_its_way, of_interest, copy=False)))
    return select(placed, None, conditions)
