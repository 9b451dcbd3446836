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


def run_sessions(
    rows: list[SessionRow], gap: int, marks: Watermarks, update: bool
) -> list[tuple[int, int, int]]:
    """(member, session, epoch in which the session comes out), as sessions grow, merge and close.

    With ``update`` a session comes out, as it then is, in every epoch in which it got rows.
    """
    numbers = count()
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
    return out
