"""How it goes with sinks that did not take their rows, or could not be reached to publish them.

What waits is durable (``outbox``, and the commit's publications); when it was last tried and with
what result is not: after a restart everything is tried at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.engine.epochs.outbox import waiting_rows
from headrace.engine.epochs.report import EpochReport
from headrace.errors import HeadraceError, SinkError
from headrace.settings import Settings
from headrace.state.arrangement import Arrangement
from headrace.state.committed import Committed
from headrace.state.publication import Publication

#: From a millisecond to more than a century: any longest pause is reached by then.
_MOST_DOUBLINGS = 42


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait before a sink is tried again (seconds), and what may wait for it.

    At the end of a run over what is there it is tried ``last_tries`` times before the run ends
    without it. 0 rows is no bound.
    """

    first_pause: float = 1.0
    longest_pause: float = 60.0
    last_tries: int = 5
    most_rows: int = 10_000_000

    @classmethod
    def of(cls, settings: Settings) -> RetryPolicy:
        return cls(
            settings.sink_retry_pause / 1_000,
            settings.sink_longest_pause / 1_000,
            settings.sink_last_tries,
            settings.outbox_rows,
        )


@dataclass
class Delivery:
    """The tries to hand rows over to a sink, and what it said last."""

    policy: RetryPolicy
    error: HeadraceError
    tries: int = 0
    next_try: float = 0.0

    def failed(self, error: HeadraceError) -> None:
        # A sink may be broken for weeks; 2.0 to the power of its tries would overflow.
        doubled = self.policy.first_pause * 2.0 ** min(self.tries, _MOST_DOUBLINGS)
        pause = min(doubled, self.policy.longest_pause)
        self.tries, self.error = self.tries + 1, error
        self.next_try = time.monotonic() + pause

    @property
    def is_due(self) -> bool:
        return self.next_try <= time.monotonic()


@dataclass(frozen=True)
class Waiting:
    """What waits for a sink, and how it goes with the sink; nothing is known of that at first."""

    outbox: Arrangement
    delivery: Delivery | None


class Deliveries:
    """Those of the queries of one runner."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self._by_query: dict[str, Delivery] = {}
        #: The tries to publish what was committed, of all sinks together.
        self.publishing: Delivery | None = None

    def note(self, report: EpochReport, state: Committed) -> None:
        """Take in what sinks said in an epoch."""
        for name, error in report.refused.items():
            self._by_query.setdefault(name, Delivery(self.policy, error)).failed(error)
        for name in [n for n in self._by_query if waiting_rows(state, n) is None]:
            del self._by_query[name]

    def note_unpublished(self, unpublished: Mapping[Publication, str]) -> None:
        if not unpublished:
            self.publishing = None
            return
        publication, reason = next(iter(unpublished.items()))
        error = SinkError(
            f"{publication.final} cannot be published: {reason}",
            hint="mend the sink's folder; what was staged appears when it can be written to",
        )
        self.publishing = self.publishing or Delivery(self.policy, error)
        self.publishing.failed(error)

    def due(self, state: Committed, queries: Iterable[str]) -> list[str]:
        """Queries for whose sinks rows wait, where it is time to try again."""
        waiting = [name for name in queries if waiting_rows(state, name) is not None]
        return [n for n in waiting if n not in self._by_query or self._by_query[n].is_due]

    def last_refusal(self, query: str) -> HeadraceError | None:
        delivery = self._by_query.get(query)
        return None if delivery is None else delivery.error

    def waiting(self, state: Committed, queries: Iterable[str]) -> dict[str, Waiting]:
        """What waits for sinks, by query."""
        outboxes = {name: waiting_rows(state, name) for name in queries}
        return {
            name: Waiting(outbox, self._by_query.get(name))
            for name, outbox in outboxes.items()
            if outbox is not None
        }
