"""The demo's screen: streams, queries and newest results, drawn anew several times a second.

On a terminal it is a live screen; elsewhere (a pipe, a log) it is a plain line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from headrace.cli.progress import Glance, plain_line, query_table

_PLAIN_EVERY = 5.0
# On a screen with fewer lines there is room for results only, not for the plan with them.
_LINES_FOR_PLANS = 36
# The columns of the queries' table take 76 characters without the kinds, and the frame four.
WIDTH_FOR_KINDS = 100


@dataclass(frozen=True)
class Newest:
    """The newest results of one query, with its text and its plan."""

    query: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    sql: str = ""
    plan: str = ""


@dataclass(frozen=True)
class Moment:
    """All that the screen shows at one time."""

    elapsed: float
    total: float
    # Rows written by now, and per second.
    streams: Mapping[str, tuple[int, float]]
    queries: list[Glance]
    kinds: Mapping[str, str]
    newest: Newest | None = None

    @property
    def started(self) -> bool:
        return any(query.epoch is not None for query in self.queries)


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
            self._live.update(draw(moment, self.console.width, self.console.height))
        elif time.monotonic() - self._said >= _PLAIN_EVERY:
            self._said = time.monotonic()
            self.console.print(Text(plain(moment)), soft_wrap=True)


def draw(moment: Moment, width: int, lines: int) -> RenderableType:
    """The whole screen, for a terminal of this size."""
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    bar.add_row(
        ProgressBar(total=moment.total, completed=min(moment.elapsed, moment.total)),
        f"{moment.elapsed:.0f} of {moment.total:.0f} s",
    )
    streams = Text("   ").join(
        Text.assemble((name, "bold cyan"), f" {rows:,} rows, {rate:,.0f}/s")
        for name, (rows, rate) in moment.streams.items()
    )
    kinds = moment.kinds if width >= WIDTH_FOR_KINDS else None
    parts: list[RenderableType] = [bar, streams, query_table(moment.queries, kinds)]
    if moment.newest is not None:
        parts += newest_parts(moment.newest, with_plan=lines >= _LINES_FOR_PLANS)
    elif not moment.started:
        parts.append(Text("the first epoch compiles all plans and takes longest", style="dim"))
    return Panel(Group(*parts), title="headrace demo", border_style="blue")


def newest_parts(newest: Newest, with_plan: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(newest.query, style="bold cyan")]
    if with_plan:
        parts += [sql_text(newest.sql), Text(newest.plan, style="dim")]
    return [*parts, result_table(newest)]


def sql_text(sql: str) -> Syntax:
    # ansi_dark takes the terminal's own colours, so it can be read on a light ground too.
    return Syntax(sql, "sql", theme="ansi_dark", background_color="default", word_wrap=True)


def result_table(newest: Newest) -> RenderableType:
    if not newest.rows:
        return Text("no results yet", style="italic")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in newest.columns:
        table.add_column(column, no_wrap=True)
    for row in newest.rows:
        table.add_row(*row)
    return table


def plain(moment: Moment) -> str:
    streams = ", ".join(
        f"{name} {rows:,} rows ({rate:,.0f}/s)" for name, (rows, rate) in moment.streams.items()
    )
    return f"{moment.elapsed:4.0f} s  {streams}; {plain_line(moment.queries)}"
