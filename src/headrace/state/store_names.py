"""What stores are called: queries that need the same state find it under the same name.

A name is made of everything that decides what a store holds, drops or calls late:

- the rows that it is made of, as a plan, and how they are grouped;
- the column whose time says how long they are kept, and whether they are late;
- the clocks by which that is decided in the store itself, where rows are told apart when they
  come and not when they are read;
- the moment from which on its input is seen, where that input has state of its own: two queries
  that joined at different moments see different rows of it.

Whatever is only *added* for one more user (columns, flags of lateness, longer retention) is not
part of it. Names are the same in every process, so a restart finds its state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum

from headrace.definitions.lateness import Lateness
from headrace.names import storage_name
from headrace.plan.expressions import Column, Expr, Named
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Aggregate, Join, Node, Project
from headrace.plan.windows import Window


class StoreKind(StrEnum):
    """What an arrangement holds; its name begins with it."""

    ROWS = "rows"
    PANES = "panes"
    SESSIONS = "sessions"
    SETS = "sets"
    TRAILING = "trailing"
    TABLE = "table"
    LATE = "late"
    OUTPUT = "output"
    RESULTS = "results"
    OUTBOX = "outbox"

    @property
    def is_of_a_query(self) -> bool:
        """Whether it belongs to one query, and not to what is computed for all."""
        return self in (StoreKind.RESULTS, StoreKind.OUTBOX)


def kind_of(name: str) -> StoreKind:
    """The kind of the arrangement of a name that was made here.

    >>> kind_of(rows_of_stream("bids"))
    <StoreKind.ROWS: 'rows'>
    """
    return StoreKind(name.partition("-")[0])


def results_of_query(query: str) -> str:
    """The result table that is kept for a query."""
    return f"{StoreKind.RESULTS}-{storage_name(query)}"


def outbox_of_query(query: str) -> str:
    """The rows that wait for a query's sink."""
    return f"{StoreKind.OUTBOX}-{storage_name(query)}"


def rows_of_stream(stream: str) -> str:
    """Rows of a stream, which has one time, and whose rows are hidden when they are read."""
    return f"{StoreKind.ROWS}-{storage_name(stream)}"


def rows_of(node: Node, time: str, since: int | None) -> str:
    """Rows of an operator, kept by one of its times."""
    return _name(StoreKind.ROWS, since, plan_hash(node), time)


def panes_of(node: Aggregate, since: int | None) -> str:
    """Panes of windows that come with the rows, or of all rows so far."""
    return _name(StoreKind.PANES, since, _grouped(node))


def panes_of_family(family: str, since: int | None, pane: str, generation: int) -> str:
    """Panes of a grouping in one of its layouts; the layout's number comes last."""
    begun = "" if since is None else f"-{since}"
    return f"{family}{begun}-{pane}-{generation}"


def sessions_of(node: Aggregate, rule: Lateness, since: int | None) -> str:
    return _name(StoreKind.SESSIONS, since, _grouped(node), rule.flag)


def sessions_of_join(node: Join, since: int | None) -> str:
    """Sessions over both inputs of a join. Its rule of lateness names the sessions below it, and
    so cannot be part of their name; it follows from the plan."""
    return _name(StoreKind.SESSIONS, since, plan_hash(node))


def set_of(
    node: Node,
    groups: Iterable[Expr],
    time: Column,
    pane: Window,
    rule: Lateness | None,
    since: int | None,
) -> str:
    """An aggregation set, which takes in no row that is late for its join."""
    shape = Aggregate(node, _numbered(groups), time, (pane,), ())
    return _name(StoreKind.SETS, since, plan_hash(shape), "all" if rule is None else rule.flag)


def trailing_set_of(
    node: Node,
    groups: Iterable[Expr],
    time: Column,
    window: Window,
    clocks: frozenset[str],
    since: int | None,
) -> str:
    """The set of a window that ends at the watermark of these clocks."""
    shape = Aggregate(node, _numbered(groups), time, (window,), ())
    return _name(StoreKind.TRAILING, since, plan_hash(shape), *sorted(clocks))


def table_set_of(node: Node, groups: Iterable[Expr]) -> str:
    return _name(StoreKind.TABLE, None, plan_hash(Project(node, _numbered(groups))))


def late_groups_of(node: Aggregate, since: int | None) -> str:
    """The groups so far of a landmark over joined sets."""
    return _name(StoreKind.LATE, since, plan_hash(node))


def output_of(node: Aggregate, since: int | None) -> str:
    """The output of an aggregate whose inputs have windows that move, kept up to date with them."""
    return _name(StoreKind.OUTPUT, since, plan_hash(node))


def _grouped(node: Aggregate) -> str:
    """What is grouped how, whichever functions are computed of it and whatever keys are called."""
    keys = _numbered(key.expr for key in node.keys)
    return plan_hash(Aggregate(node.input, keys, node.time, node.windows, ()))


def _numbered(groups: Iterable[Expr]) -> tuple[Named, ...]:
    return tuple(Named(f"k{index}", expr) for index, expr in enumerate(groups))


def _name(kind: StoreKind, since: int | None, *parts: str) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return f"{kind}-{digest}" if since is None else f"{kind}-{digest}-{since}"
