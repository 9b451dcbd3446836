"""The demo's screen: streams, queries and newest results, drawn anew several times a second.

On a terminal it is a live screen; elsewhere (a pipe, a log) it is a plain line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.cli.progress import Glance, plain_line, query_table

_PLAIN_EVERY = 5.0


@dataclass(frozen=True)
class Newest:
    """The newest results of one query."""

    query: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Moment:
    """All that the screen shows at one time."""

    elapsed: float
    total: float
    streams: dict[str, int]
    queries: list[Glance]
    newest: Newest | None = None


@dataclass
class Screen:
    """Draws moments; used as a context."""

    console: Console
    _live: Live | None = field(default=None, init=False)
    _said: float = field(default=0.0, init=False)

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, moment: Moment) -> None:
        if self._live is not None:
            self._live.update(draw(moment))
        elif time.monotonic() - self._said >= _PLAIN_EVERY:
            self._said = time.monotonic()
            self.console.print(Text(plain(moment)), soft_wrap=True)


def draw(moment: Moment) -> RenderableType:
    """The whole screen."""
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right")
    bar.add_row(
        ProgressBar(total=moment.total, completed=min(moment.elapsed, moment.total)),
        f"{moment.elapsed:.0f} of {moment.total:.0f} s",
    )
    streams = Text("  ").join(
        Text.assemble((name, "bold cyan"), f" {rows:,} rows, {_rate(rows, moment.elapsed)}")
        for name, rows in moment.streams.items()
    )
    parts: list[RenderableType] = [bar, streams, query_table(moment.queries)]
    if moment.newest is not None:
        parts.append(result_table(moment.newest))
    return Panel(Group(*parts), title="headrace demo", border_style="blue")


def result_table(newest: Newest) -> Table:
    table = Table(title=f"newest results of {newest.query}", title_justify="left", expand=True)
    for column in newest.columns:
        table.add_column(column, overflow="fold")
    for row in newest.rows:
        table.add_row(*row)
    return table


def plain(moment: Moment) -> str:
    streams = ", ".join(
        f"{name} {rows:,} rows ({_rate(rows, moment.elapsed)})"
        for name, rows in moment.streams.items()
    )
    return f"{moment.elapsed:4.0f} s  {streams}; {plain_line(moment.queries)}"


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds:,.0f}/s" if seconds > 0 else "0/s"
