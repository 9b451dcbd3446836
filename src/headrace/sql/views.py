"""Views: queries with names, which other queries read as they read streams.

A view is planned when it is made, and its plan stands wherever its name is read. So it means the
same in all queries, costs nothing where nobody reads it, and is computed once for all that do:
equal plans are one computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from headrace.errors import Position
from headrace.names import folded
from headrace.plan.nodes import Node
from headrace.sql.dialect import parse_query
from headrace.sql.positions import position_of


@dataclass(frozen=True)
class View:
    """A named plan, the text that it came from, and the views that this text names."""

    name: str
    plan: Node
    text: str
    reads: tuple[View, ...] = ()


def with_those_below(views: Iterable[View]) -> tuple[View, ...]:
    """Views and all that they read, each once, what is read before what reads it."""
    by_name: dict[str, View] = {}
    for view in views:
        for each in (*with_those_below(view.reads), view):
            by_name.setdefault(folded(each.name), each)
    return tuple(by_name.values())


def names_read(text: str) -> dict[str, Position | None]:
    """The folded names of all relations that a query reads, and where each is named first.

    Queries of a WITH are none, wherever their names are in sight.

    >>> list(names_read("WITH c AS (SELECT * FROM b) SELECT * FROM c JOIN D ON c.x = d.x"))
    ['b', 'd']
    """
    return names_in(parse_query(text))


def names_in(tree: exp.Expr) -> dict[str, Position | None]:
    """``names_read`` of a query that was parsed already."""
    places: dict[str, list[exp.Expr]] = {}
    open_nodes: list[tuple[exp.Expr, frozenset[str]]] = [(tree, frozenset())]
    while open_nodes:
        node, hidden = open_nodes.pop()
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            name = folded(".".join(part.name for part in node.parts))
            if name not in hidden:
                places.setdefault(name, []).append(node)
        clause = node.args.get("with_")
        for query in clause.expressions if clause is not None else ():
            open_nodes.append((query.this, hidden))
            hidden |= {folded(query.alias)}
        open_nodes += [(below, hidden) for below in node.iter_expressions() if below is not clause]
    return {name: _first(places[name]) for name in sorted(places)}


def _first(nodes: Iterable[exp.Expr]) -> Position | None:
    places = [place for place in map(position_of, nodes) if place is not None]
    return min(places, key=lambda place: (place.line, place.column), default=None)


def reading_order(reads: Mapping[str, Iterable[str]]) -> list[str] | tuple[str, ...]:
    """The names so that each comes after those it reads; a tuple is a cycle, in reading order.

    >>> reading_order({"a": ["b"], "b": ["bids"]}), reading_order({"a": ["b"], "b": ["a"]})
    (['b', 'a'], ('a', 'b'))
    """
    done: dict[str, None] = {}
    for start in reads:
        path = [start] if start not in done else []
        while path:
            waits_for = [name for name in reads[path[-1]] if name in reads and name not in done]
            if not waits_for:
                done[path.pop()] = None
            elif waits_for[0] in path:
                return tuple(path[path.index(waits_for[0]) :])
            else:
                path.append(waits_for[0])
    return list(done)
