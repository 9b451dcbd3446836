"""What an engine reports of its queries, as a person wants to see it.

The only place of the command line that knows the shape of ``lastProgress`` and ``status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.session import Headrace, QueryHandle


@dataclass(frozen=True)
class Glance:
    """One query at one moment."""

    name: str
    state: str
    epoch: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    seconds: float | None = None
    watermark: str | None = None
    warning: str | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def glance(name: str, handle: QueryHandle) -> Glance:
    """Look at a query; one that has not run yet has no figures."""
    error = handle.exception()
    state = "failed" if error is not None else str(handle.status["message"])
    reports = handle.recentProgress
    if not reports:
        return Glance(name, state, error=_first_line(error))
    last = reports[-1]
    return Glance(
        name,
        state,
        epoch=int(last["epoch"]),
        rows_in=int(last["numInputRows"]),
        rows_out=int(last["totalOutputRows"]),
        late_rows=sum(int(report["lateRows"]) for report in reports),
        seconds=float(last["durationMs"]["triggerExecution"]) / 1_000,
        watermark=last["watermark"],
        warning=handle.status.get("warning"),
        error=_first_line(error),
    )


def glances(handles: Mapping[str, QueryHandle]) -> list[Glance]:
    return [glance(name, handle) for name, handle in handles.items()]


def rows_taken(hr: Headrace) -> int:
    """Rows that have been part of an epoch."""
    return sum(int(epoch["numInputRows"]) for epoch in hr.recentProgress)


def query_table(queries: list[Glance], kinds: Mapping[str, str] | None = None) -> Table:
    """The state of all queries as a table; ``kinds`` adds a word on each."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("query", style="bold", no_wrap=True, overflow="ellipsis")
    if kinds is not None:
        table.add_column("kind", no_wrap=True)
    for heading in ("epoch", "rows in", "took", "watermark", "late", "results"):
        table.add_column(heading, justify="right", no_wrap=True)
    # Long errors are folded; a word such as "finished" is not.
    table.add_column("state", overflow="fold", min_width=len("finished"))
    for query in queries:
        ran = query.epoch is not None
        table.add_row(
            query.name,
            *([] if kinds is None else [kinds[query.name]]),
            str(query.epoch) if ran else "",
            f"{query.rows_in:,}" if ran else "",
            "" if query.seconds is None else f"{query.seconds:.2f} s",
            # Of 2024-01-01T10:00:00.000Z the time of day, to the second.
            "" if query.watermark is None else query.watermark[11:19],
            Text(f"{query.late_rows:,}", style="yellow") if query.late_rows else "",
            f"{query.rows_out:,}" if ran else "",
            Text(query.error or query.warning or query.state, style=_style(query)),
        )
    return table


def _style(query: Glance) -> str:
    return "red" if query.error else "yellow" if query.warning else "green"


def plain_line(queries: list[Glance]) -> str:
    """The state of all queries in one line, for where there is no screen."""
    words = []
    for query in queries:
        if query.error:
            words.append(f"{query.name} failed: {query.error}")
        else:
            words.append(f"{query.name} {query.rows_out:,}")
    took = next((f" ({q.seconds:.2f} s)" for q in queries if q.seconds is not None), "")
    epoch = max((q.epoch for q in queries if q.epoch is not None), default=None)
    begin = "no epoch yet" if epoch is None else f"epoch {epoch}{took}"
    return f"{begin}; results: " + ", ".join(words)


def _first_line(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
