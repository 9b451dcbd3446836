"""The demo's live streams: a thread that writes bids and clicks as small JSON files.

Time is this machine's clock, so that windows open and close while one watches.
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

BIDS_SCHEMA = "auction BIGINT, bidder BIGINT, category STRING, price BIGINT, ts TIMESTAMP"
CLICKS_SCHEMA = "auction BIGINT, visitor BIGINT, page STRING, ts TIMESTAMP"
CATEGORIES = ("art", "books", "coins", "stamps")
PEOPLE = 500
PAGES = ("photo", "seller", "history")


@dataclass
class Feed:
    """Two streams that grow until they are closed."""

    folder: Path
    bids_per_second: int = 400
    clicks_per_second: int = 200
    every: float = 0.5
    seed: int = 7
    # How much older than the newest a row may be; below the streams' delay, so that none is late.
    disorder: float = 1.0
    bids: int = 0
    clicks: int = 0
    files: int = 0
    _done: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._began = time.monotonic()
        self._ended: float | None = None
        for name in ("bids", "clicks"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        # The first files are written here: a stream that has rows shows its first epoch sooner.
        self._began = time.monotonic()
        self.write_once()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write no more rows."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._ended = time.monotonic()

    def close_windows(self) -> None:
        """Add one row far ahead to each stream, so that all windows close."""
        ahead = datetime.now(UTC) + timedelta(hours=1)
        # Keys of their own: these two rows are to move the watermarks, not to meet each other.
        self._write("bids", [_bid(-1, -1, "none", 0, ahead)])
        self._write("clicks", [_click(-2, -2, "none", ahead)])
        self.bids += 1
        self.clicks += 1

    def rates(self) -> dict[str, tuple[int, float]]:
        """Rows written to each stream, and how many of them per second."""
        now = time.monotonic() if self._ended is None else self._ended
        seconds = max(self.every, now - self._began)
        return {
            name: (rows, rows / seconds)
            for name, rows in (("bids", self.bids), ("clicks", self.clicks))
        }

    def write_once(self) -> None:
        """Write one file of each stream."""
        self._write_both(datetime.now(UTC))

    def _run(self) -> None:
        while not self._done.wait(self.every):
            self.write_once()

    def _write_both(self, now: datetime) -> None:
        pick = self._random
        # Few auctions get most of the bids, as in life.
        auctions = [int(pick.paretovariate(1.1)) % 50 for _ in range(1_000)]

        def moment() -> datetime:
            return now - timedelta(seconds=pick.random() * self.disorder)

        bids = [
            _bid(
                pick.choice(auctions),
                pick.randrange(PEOPLE),
                pick.choice(CATEGORIES),
                pick.randrange(1, 1_000),
                moment(),
            )
            for _ in range(int(self.bids_per_second * self.every))
        ]
        clicks = [
            _click(pick.choice(auctions), pick.randrange(PEOPLE), pick.choice(PAGES), moment())
            for _ in range(int(self.clicks_per_second * self.every))
        ]
        self._write("bids", bids)
        self._write("clicks", clicks)
        self.bids += len(bids)
        self.clicks += len(clicks)

    def _write(self, stream: str, rows: list[dict[str, object]]) -> None:
        """A file appears whole, by renaming; Spark passes over names that begin with a dot."""
        self.files += 1
        name = f"{self.files:06d}-{time.time_ns()}.json"
        hidden = self.folder / stream / f".{name}"
        hidden.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
        hidden.rename(self.folder / stream / name)


def _bid(auction: int, bidder: int, category: str, price: int, ts: datetime) -> dict[str, object]:
    return {
        "auction": auction,
        "bidder": bidder,
        "category": category,
        "price": price,
        "ts": ts.isoformat(timespec="milliseconds"),
    }


def _click(auction: int, visitor: int, page: str, ts: datetime) -> dict[str, object]:
    return {
        "auction": auction,
        "visitor": visitor,
        "page": page,
        "ts": ts.isoformat(timespec="milliseconds"),
    }
