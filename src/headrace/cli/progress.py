"""What a race reports of its queries, as a person wants to see it.

The only place of the command line that knows the shape of ``lastProgress`` and ``status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.session import QueryHandle


@dataclass(frozen=True)
class Glance:
    """One query at one moment."""

    name: str
    state: str
    epoch: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    seconds: float | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def glance(name: str, handle: QueryHandle) -> Glance:
    """Look at a query; one that has not run yet has no figures."""
    error = handle.exception()
    status = handle.status
    state = "failed" if error is not None else str(status["message"])
    progress = handle.lastProgress
    if progress is None:
        return Glance(name, state, error=_first_line(error))
    return Glance(
        name,
        state,
        epoch=int(progress["epoch"]),
        rows_in=int(progress["numInputRows"]),
        rows_out=int(progress["totalOutputRows"]),
        seconds=float(progress["durationMs"]["triggerExecution"]) / 1_000,
        error=_first_line(error),
    )


def glances(handles: Mapping[str, QueryHandle]) -> list[Glance]:
    return [glance(name, handle) for name, handle in handles.items()]


def query_table(queries: list[Glance]) -> Table:
    """The state of all queries as a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("query", style="bold")
    table.add_column("state")
    for heading in ("epoch", "rows in", "last epoch", "results"):
        table.add_column(heading, justify="right")
    for query in queries:
        colour = "red" if query.error else "green"
        table.add_row(
            query.name,
            Text(query.error or query.state, style=colour),
            "" if query.epoch is None else str(query.epoch),
            f"{query.rows_in:,}",
            "" if query.seconds is None else f"{query.seconds:.2f} s",
            f"{query.rows_out:,}",
        )
    return table


def plain_line(queries: list[Glance]) -> str:
    """The state of all queries in one line, for where there is no screen."""
    words = []
    for query in queries:
        if query.error:
            words.append(f"{query.name} failed: {query.error}")
        else:
            took = "" if query.seconds is None else f" ({query.seconds:.2f} s)"
            words.append(f"{query.name} {query.rows_out:,}{took}")
    return "results: " + ", ".join(words)


def _first_line(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
