"""Which rows are late: a rule that is part of a store's name, or a flag on its rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlglot import exp

from headrace.definitions.definition import Sql, micros, number


@dataclass(frozen=True)
class Lateness:
    """A row is on time if ``time + grace`` is not below the watermark of these streams.

    ``strict`` asks for more than the watermark (sessions), not at least it (joins). ``grace`` is
    how long after its own time a row is still welcome.
    """

    streams: frozenset[str]
    grace: int
    strict: bool = False

    @property
    def flag(self) -> str:
        words = f"{sorted(self.streams)}:{self.grace}:{self.strict}"
        return f"__on_time_{hashlib.sha256(words.encode()).hexdigest()[:8]}"

    def condition(self, time: Sql, watermark: int | None) -> Sql:
        if watermark is None:
            return exp.true()
        limit = number((watermark - self.grace) * 1_000)
        return micros(time) > limit if self.strict else micros(time) >= limit
