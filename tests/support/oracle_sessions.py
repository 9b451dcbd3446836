"""Sessions of an epoch-by-epoch run: how they grow, merge, close and are forgotten."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count

#: Watermark before and after each epoch, in microseconds; None is "none yet".
Watermarks = list[tuple[int | None, int | None]]


@dataclass(frozen=True)
class SessionRow:
    """A row that is not late: its number, its key's number, its time and its epoch."""

    member: int
    key: int
    at: int
    epoch: int


@dataclass
class _OpenSession:
    number: int
    rows: list[SessionRow]

    @property
    def first(self) -> int:
        return min(row.at for row in self.rows)

    @property
    def last(self) -> int:
        return max(row.at for row in self.rows)


@dataclass(frozen=True)
class SessionRun:
    """What came of the sessions of a run.

    ``out`` holds (member, session, epoch in which the session comes out); ``open_since`` the least
    time of the sessions that are still open when each epoch ends, None where none is.
    """

    out: list[tuple[int, int, int]]
    open_since: list[int | None]


def run_sessions(rows: list[SessionRow], gap: int, marks: Watermarks, update: bool) -> SessionRun:
    """Sessions as they grow, merge and close.

    With ``update`` a session comes out, as it then is, in every epoch in which it got rows.
    """
    numbers = count()
    open_since: list[int | None] = []
    open_sessions: dict[int, list[_OpenSession]] = defaultdict(list)
    out: list[tuple[int, int, int]] = []
    for epoch, (_, after) in enumerate(marks):
        for row in (row for row in rows if row.epoch == epoch):
            mine = open_sessions[row.key]
            # Rows exactly one gap apart are together.
            near = [s for s in mine if s.first - gap <= row.at <= s.last + gap]
            merged = [row, *(member for session in near for member in session.rows)]
            open_sessions[row.key] = [s for s in mine if s not in near]
            open_sessions[row.key].append(_OpenSession(next(numbers), merged))
        for key, sessions in open_sessions.items():
            if update:
                changed = [s for s in sessions if any(row.epoch == epoch for row in s.rows)]
                out += [(row.member, s.number, epoch) for s in changed for row in s.rows]
            closed = [s for s in sessions if after is not None and s.last + gap <= after]
            if not update:
                out += [(row.member, s.number, epoch) for s in closed for row in s.rows]
            open_sessions[key] = [s for s in sessions if s not in closed]
        still = [session.first for sessions in open_sessions.values() for session in sessions]
        open_since.append(min(still, default=None))
    return SessionRun(out, open_since)


def held_back(marks: Watermarks, open_since: list[int | None]) -> Watermarks:
    """The clock above a session join: the least time of its open sessions where that is lower.

    A session's rows come out when it closes, and may be older than the watermark by any length of
    time. Like every watermark it is in whole milliseconds.
    """
    clock: Watermarks = []
    before = marks[0][0] if marks else None
    for (_, after), since in zip(marks, open_since, strict=True):
        if after is not None and since is not None:
            after = min(after, since // 1000 * 1000)
        clock.append((before, after))
        before = after
    return clock
