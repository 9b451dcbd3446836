"""Queries that come and go: what they are, when they do, and the process that is killed meanwhile.

python -m tests.engine.crashes.churn_child FOLDER PLACE   plays CUT_SHORT; dies at the place
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from headrace.failpoints import VARIABLE
from headrace.query import QueryHandle
from tests.engine.crashes.crash_child import own_spark
from tests.support.script import Stage, Stream
from tests.support.stage import WAIT_SECONDS

BIDS = Stream("bids", "k string, v bigint, w int, ts timestamp", delay="5 seconds")
ASKS = Stream("asks", "k string, p bigint, ts timestamp", delay="3 seconds")
STREAMS = (BIDS, ASKS)
#: How far event time goes on in a micro-batch, in seconds.
PACE = 12
GAP = 2
#: Merged files are part of what must come to no harm.
MERGED_FILES = {"spark.headrace.compaction.files": "3"}
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Meaning:
    """One query, written in several ways.

    ``owed`` says what somebody who joins late gets of it: every row (of a stateless query), windows
    that begin once it is whole, pairs of rows that are both new, sessions that begin a gap later,
    or sums since it joined. ``warm_up`` is how many milliseconds after the time of joining it is
    whole. Nobody asks for those that are ``late`` at first.
    """

    name: str
    texts: tuple[str, ...]
    owed: str = "windows"
    warm_up: int = 0
    mode: str = "append"
    streams: frozenset[str] = frozenset({"bids"})
    late: bool = False


def _filtered(name: str, *conditions: str, late: bool = False) -> Meaning:
    """Sums of some rows; all of these are folded into one store."""
    first, last = conditions[0], conditions[-1]
    plain = {"k": "k", "v": "v", "w": "w"}
    renamed = {"k": "who", "v": "x", "w": "y"}
    return Meaning(
        name,
        (
            "SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM bids "
            f"WHERE {first.format(**plain)} GROUP BY k, window(ts, '10 seconds')",
            "SELECT SUM(x) AS s, window AS slot, who, COUNT(*) AS many FROM "
            "(SELECT k AS who, v AS x, w AS y, ts AS moment FROM bids) "
            f"WHERE {last.format(**renamed)} "
            "GROUP BY who, window(moment, '10 seconds', '10 seconds')",
            "SELECT COUNT(*) AS c, k AS kk, SUM(v) AS sum_of_v, window FROM "
            f"(SELECT * FROM bids WHERE {last.format(**plain)}) "
            "GROUP BY k, window(ts, '10 seconds')",
        ),
        late=late,
    )


def _hopping(name: str, *conditions: str) -> Meaning:
    first, last = conditions[0], conditions[-1]
    return Meaning(
        name,
        (
            "SELECT k, window, AVG(v) AS mean, MIN(w) AS least, MAX(v) AS most FROM bids "
            f"WHERE {first} GROUP BY k, window(ts, '20 seconds', '10 seconds')",
            "SELECT window, MAX(v) AS a, MIN(w) AS b, AVG(v) AS c, k AS d FROM bids "
            f"WHERE {last} GROUP BY window(ts, '20 seconds', '10 seconds'), k",
        ),
    )


_BOTH = frozenset({"bids", "asks"})
_BIDS_ASKS = "bids b JOIN asks a ON b.k = a.k AND window(b.ts, '{0}') = window(a.ts, '{0}')"
_ASKS_BIDS = "asks x JOIN bids y ON y.k = x.k AND window(x.ts, '{0}') = window(y.ts, '{0}')"
_SHORT_BIDS_ASKS, _SHORT_ASKS_BIDS = (j.format("5 seconds") for j in (_BIDS_ASKS, _ASKS_BIDS))
_BIDS_ASKS, _ASKS_BIDS = (join.format("10 seconds") for join in (_BIDS_ASKS, _ASKS_BIDS))
#: A row of the same window may lie that far before and after another.
_REACH, _SHORT_REACH = 2 * 9_999, 2 * 4_999

MEANINGS = (
    Meaning(
        "large",
        (
            "SELECT k, v, ts FROM bids WHERE v > 50 AND w < 7",
            "SELECT k AS who, v AS amount, ts AS moment FROM bids WHERE 7 > w AND NOT v <= 50",
            "SELECT v, ts, k FROM (SELECT * FROM bids WHERE w < 7) WHERE 50 < v",
        ),
        owed="rows",
    ),
    Meaning(
        "added",
        (
            "SELECT k, v + w AS s, ts FROM bids WHERE v + w > 60",
            "SELECT w + v AS sum_of_both, k AS kk, ts FROM bids WHERE 60 < w + v",
        ),
        owed="rows",
    ),
    Meaning(
        "asked",
        (
            "SELECT k, p FROM asks WHERE p IS NOT NULL",
            "SELECT p AS price, k FROM (SELECT k, p FROM asks) WHERE NOT p IS NULL",
        ),
        owed="rows",
        streams=frozenset({"asks"}),
    ),
    Meaning(
        "either",
        (
            "SELECT k, ts FROM bids WHERE v > 30 UNION ALL SELECT k, ts FROM asks WHERE p > 30",
            "SELECT k, ts FROM asks WHERE 30 < p UNION ALL SELECT k, ts FROM bids WHERE 30 < v",
            "SELECT c AS key, d AS moment FROM (SELECT k AS c, ts AS d FROM bids WHERE v > 30 "
            "UNION ALL SELECT k, ts FROM asks WHERE p > 30)",
        ),
        owed="rows",
        streams=_BOTH,
    ),
    _filtered("f_and", "{v} > 20 AND {w} < 9", "9 > {w} AND NOT {v} <= 20"),
    _filtered("f_small", "{v} < 30", "NOT {v} >= 30"),
    _filtered("f_between", "{v} BETWEEN 10 AND 60", "{v} <= 60 AND {v} >= 10"),
    _filtered("f_in", "{w} IN (1, 3) OR {v} IS NULL", "{v} IS NULL OR {w} = 3 OR {w} = 1"),
    _filtered("f_key", "{k} = 'a' AND {v} > 5", "5 < {v} AND 'a' = {k}"),
    _filtered("f_none", "{v} > 1000", "1000 < {v}"),
    _filtered("f_known", "{k} IS NOT NULL", "NOT {k} IS NULL"),
    _filtered("f_all", "true"),
    _hopping("h_all", "true"),
    _hopping("h_large", "v >= 40", "NOT 40 > v"),
    _hopping("h_either", "v < 20 OR w > 6", "w > 6 OR 20 > v"),
    Meaning(
        "fine",
        (
            "SELECT k, w, window, COUNT(v) AS n FROM bids GROUP BY k, w, window(ts, '10 seconds')",
            "SELECT COUNT(v) AS n, window, w AS ww, k AS kk FROM bids "
            "GROUP BY window(ts, '10 seconds'), w, k",
        ),
    ),
    Meaning(
        "coarse",
        (
            "SELECT window, COUNT(*) AS n, MAX(p) AS most FROM asks "
            "GROUP BY window(ts, '5 seconds')",
            "SELECT MAX(p) AS m, COUNT(*) AS c, window AS slot FROM (SELECT p, ts FROM asks) "
            "GROUP BY window(ts, '5 seconds')",
        ),
        streams=frozenset({"asks"}),
    ),
    Meaning(
        "distinct",
        (
            "SELECT window, COUNT(DISTINCT k) AS n FROM bids WHERE v > 3 AND w > 0 "
            "GROUP BY window(ts, '10 seconds')",
            "SELECT COUNT(DISTINCT kk) AS keys, window FROM (SELECT k AS kk, ts FROM bids "
            "WHERE w > 0 AND v > 3) GROUP BY window(ts, '10 seconds')",
        ),
    ),
    Meaning(
        "having",
        (
            "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds') "
            "HAVING COUNT(*) > 3",
            "SELECT kk, slot, n FROM (SELECT k AS kk, window AS slot, COUNT(*) AS n FROM bids "
            "GROUP BY k, window(ts, '10 seconds')) WHERE NOT n <= 3",
        ),
    ),
    Meaning(
        "updates",
        (
            "SELECT k, window, SUM(p) AS s FROM asks WHERE p > 9 "
            "GROUP BY k, window(ts, '10 seconds')",
            "SELECT SUM(p) AS t, window, k AS kk FROM asks WHERE 9 < p "
            "GROUP BY k, window(ts, '10 seconds')",
        ),
        mode="update",
        streams=frozenset({"asks"}),
    ),
    Meaning(
        "pairs",
        (
            f"SELECT b.k, b.v, a.p, b.ts AS bt, a.ts AS at FROM {_BIDS_ASKS} WHERE b.v > a.p",
            f"SELECT x.ts AS t1, y.ts AS t2, y.k AS kk, x.p, y.v FROM {_ASKS_BIDS} AND y.v > x.p",
            f"SELECT b.k, a.p AS pp, b.v AS vv, b.ts AS t, a.ts AS u FROM {_BIDS_ASKS} "
            "WHERE a.p < b.v",
        ),
        owed="pairs",
        warm_up=_REACH,
        streams=_BOTH,
    ),
    Meaning(
        "all_pairs",
        (
            "SELECT b.k, b.v, b.w, a.p, b.ts AS bt, a.ts AS at "
            f"FROM {_BIDS_ASKS} WHERE b.v > 30 AND a.p > 30",
            "SELECT x.ts AS at, y.ts AS bt, y.w, y.v, x.p, x.k "
            f"FROM {_ASKS_BIDS} WHERE 30 < x.p AND 30 < y.v",
        ),
        owed="pairs",
        warm_up=_REACH,
        streams=_BOTH,
    ),
    Meaning(
        "few_pairs",
        (
            f"SELECT b.k, b.ts AS bt, a.ts AS at FROM {_BIDS_ASKS} WHERE a.p > 40 AND b.v > 30",
            f"SELECT y.k, y.ts AS bids_time, x.ts AS asks_time FROM {_ASKS_BIDS} "
            "WHERE 30 < y.v AND 40 < x.p",
        ),
        owed="pairs",
        warm_up=_REACH,
        streams=_BOTH,
    ),
    Meaning(
        "near",
        (
            "SELECT b.k, b.ts AS bt, a.ts AS at FROM bids b JOIN asks a ON b.k = a.k AND a.ts "
            "BETWEEN b.ts - INTERVAL 3 SECONDS AND b.ts + INTERVAL 1 SECONDS WHERE b.v > 20",
            "SELECT a.ts AS t, b.ts AS u, a.k FROM asks a JOIN (SELECT * FROM bids WHERE v > 20) b "
            "ON a.k = b.k AND b.ts "
            "BETWEEN a.ts - INTERVAL 1 SECONDS AND a.ts + INTERVAL 3 SECONDS",
        ),
        owed="pairs",
        warm_up=4_000,
        streams=_BOTH,
    ),
    Meaning(
        "joined_sums",
        (
            f"SELECT b.k, window, COUNT(*) AS n, SUM(a.p) AS s FROM {_BIDS_ASKS} "
            "GROUP BY b.k, window(b.ts, '10 seconds')",
            f"SELECT SUM(x.p) AS s, window, y.k AS kk, COUNT(*) AS n FROM {_ASKS_BIDS} "
            "GROUP BY y.k, window(y.ts, '10 seconds')",
        ),
        warm_up=_REACH,
        streams=_BOTH,
    ),
    Meaning(
        "visits",
        (
            "SELECT k, session_window, COUNT(*) AS n, SUM(v) AS s FROM bids "
            f"GROUP BY k, session_window(ts, '{GAP} seconds')",
            "SELECT SUM(v) AS total, COUNT(*) AS c, session_window AS visit, k AS who FROM bids "
            f"GROUP BY session_window(ts, '{GAP} seconds'), k",
        ),
        owed="sessions",
    ),
    Meaning(
        "so_far",
        (
            "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM bids WHERE w > 1 GROUP BY k, landmark(ts)",
            "SELECT SUM(v) AS total, COUNT(*) AS c, k AS kk FROM bids WHERE 1 < w "
            "GROUP BY landmark(ts), k",
        ),
        owed="sums",
        mode="update",
    ),
    _filtered("late_filter", "{w} > 2 AND {v} < 80", "80 > {v} AND NOT {w} <= 2", late=True),
    Meaning(
        "late_sums",
        (
            f"SELECT b.k, window, COUNT(*) AS n, MAX(a.p) AS m FROM {_SHORT_BIDS_ASKS} "
            "GROUP BY b.k, window(b.ts, '5 seconds')",
            f"SELECT MAX(x.p) AS m, window, y.k AS kk, COUNT(*) AS n FROM {_SHORT_ASKS_BIDS} "
            "GROUP BY y.k, window(y.ts, '5 seconds')",
        ),
        warm_up=_SHORT_REACH,
        streams=_BOTH,
        late=True,
    ),
    Meaning(
        "late_distinct",
        (
            f"SELECT b.k, window, COUNT(DISTINCT a.p) AS n FROM {_SHORT_BIDS_ASKS} "
            "GROUP BY b.k, window(b.ts, '5 seconds')",
            f"SELECT window, COUNT(DISTINCT x.p) AS n, y.k FROM {_SHORT_ASKS_BIDS} "
            "GROUP BY y.k, window(y.ts, '5 seconds')",
        ),
        warm_up=_SHORT_REACH,
        streams=_BOTH,
        late=True,
    ),
)


@dataclass(frozen=True)
class Planned:
    """A query of the plot: how it is written, after which epoch it joins and which is its last."""

    name: str
    meaning: Meaning
    text: str
    joins_after: int
    leaves_after: int
    number: int

    @property
    def folder(self) -> str:
        """A name may be taken again by another query; its output is another."""
        return f"{self.number:03d}-{self.name}"


@dataclass(frozen=True)
class Plot:
    """Who comes and goes after which epoch, and what the streams bring."""

    queries: tuple[Planned, ...]
    files: dict[str, list[list[tuple[Any, ...]]]]

    @property
    def epochs(self) -> int:
        return len(self.files["bids"])

    def joining(self, epoch: int) -> list[Planned]:
        return [query for query in self.queries if query.joins_after == epoch]

    def leaving(self, epoch: int) -> list[Planned]:
        return [q for q in self.queries if q.leaves_after == epoch and epoch < self.epochs]

    def live(self, epoch: int) -> list[Planned]:
        """Those that take part in the epoch after this one."""
        return [q for q in self.queries if q.joins_after <= epoch < q.leaves_after]


def make_plot(seed: int, first: int, changes: Mapping[int, tuple[int, int]], epochs: int) -> Plot:
    """So many queries at first; ``changes`` says after which epoch how many leave and join."""
    random = Random(seed)
    numbers = count()
    free: list[str] = []
    present: list[Planned] = []
    gone: list[Planned] = []

    def join(epoch: int, meaning: Meaning) -> None:
        number = next(numbers)
        # Now and then under the name of one that has left.
        again = free and random.random() < 0.2
        name = free.pop() if again else f"q{number}_{meaning.name}"
        text = random.choice(meaning.texts)
        present.append(Planned(name, meaning, text, epoch, epochs, number))

    at_first = [meaning for meaning in MEANINGS if not meaning.late]
    for number in range(first):
        join(0, at_first[number % len(at_first)])
    for epoch, (leaving, joining) in changes.items():
        for turn in range(leaving):
            # Half of them are the oldest: the plans of others were taken from theirs.
            left = present.pop(0 if turn % 2 else random.randrange(len(present)))
            gone.append(replace(left, leaves_after=epoch))
        for _ in range(joining):
            join(epoch, random.choice(MEANINGS))
        free += [query.name for query in gone if query.leaves_after == epoch]
    queries = sorted([*present, *gone], key=lambda query: query.number)
    return Plot(tuple(queries), _files(random, epochs))


def _files(random: Random, epochs: int) -> dict[str, list[list[tuple[Any, ...]]]]:
    """A few dozen rows of each stream in each epoch: late ones, twice the same, without a value."""

    def value(limit: int) -> int | None:
        return None if random.random() < 0.1 else random.randrange(limit)

    def time(epoch: int) -> float | None:
        if random.random() < 0.03:
            return None
        late = random.random() < 0.12
        moment = PACE * epoch + random.uniform(-30 if late else -4, PACE)
        # Whole seconds now and then, for the edges of windows; before 0 there is nothing.
        return max(0, round(moment) if random.random() < 0.2 else round(moment, 3))

    def key() -> str | None:
        return random.choice(["a", "a", "b", "c", "d", None])

    files: dict[str, list[list[tuple[Any, ...]]]] = {"bids": [], "asks": []}
    for epoch in range(epochs):
        bids: list[tuple[Any, ...]] = [
            (key(), value(100), value(10), time(epoch)) for _ in range(30)
        ]
        asks: list[tuple[Any, ...]] = [(key(), value(100), time(epoch)) for _ in range(20)]
        files["bids"].append([*bids, *random.sample(bids, 3)])
        files["asks"].append([*asks, *random.sample(asks, 2)])
    return files


@dataclass
class Player:
    """Plays a plot on a stage, epoch by epoch."""

    stage: Stage
    plot: Plot
    handles: dict[int, QueryHandle] = field(default_factory=dict)

    @classmethod
    def on(cls, spark: SparkSession, folder: Path, plot: Plot, settings: Settings) -> Player:
        stage = Stage(spark, folder, settings, {stream.name: stream for stream in STREAMS})
        stage.open()
        return cls(stage, plot)

    def begin(self, queries: Iterable[Planned]) -> None:
        self._start(queries)
        self.stage.hr.start(processingTime="20 milliseconds")

    def run(self, epochs: Iterable[int]) -> None:
        """Bring the files of these epochs, and let queries join and leave after each."""
        for epoch in epochs:
            self.feed(epoch)
            self.change(epoch)
            self.stage.wait_until(lambda n=epoch: self._is_done(n), f"epoch {epoch}")

    def feed(self, epoch: int) -> None:
        """The files of an epoch; those that are there are there for good."""
        for stream in STREAMS:
            path = self.stage.folder / "in" / stream.name
            self.stage.files[stream.name] = len(list(path.glob("[0-9]*.parquet")))
            if self.stage.files[stream.name] < epoch:
                self.stage.add_file(stream.name, self.plot.files[stream.name][epoch - 1])

    def change(self, epoch: int) -> None:
        """Ask some to leave and others to join while the epoch runs: they do so after it."""
        begun = self.stage.checkpoint / "epochs" / f"{epoch:010d}.intent"
        self.stage.wait_until(begun.exists, f"epoch {epoch} to begin")
        leaving = [self.handles[query.number] for query in self.plot.leaving(epoch)]
        for handle in leaving:
            handle.stop()
        joining = self._start(self.plot.joining(epoch))
        self.stage.wait_until(lambda: not any(h.isActive for h in leaving), "some to leave")
        self.stage.wait_until(
            lambda: all(h.status["message"] == "running" for h in joining), "some to join"
        )

    def _is_done(self, epoch: int) -> bool:
        last = self.stage.hr.lastProgress
        return last is not None and int(last["epoch"]) >= epoch

    def _start(self, queries: Iterable[Planned]) -> list[QueryHandle]:
        made = []
        for query in queries:
            writer = self.stage.hr.sql(query.text).writeStream.queryName(query.name)
            writer = writer.format("parquet").outputMode(query.meaning.mode)
            handle = writer.option("path", self.stage.output(query.folder)).start()
            self.handles[query.number] = handle
            made.append(handle)
        return made


#: A life that is cut short in the middle of its sixth epoch. Nobody leaves just before it: that
#: somebody has left is written down with the next epoch.
CUT_SHORT = make_plot(2, 40, {2: (6, 6), 3: (6, 6), 5: (0, 4), 7: (6, 6)}, epochs=9)
CUT_AT = 6


def main() -> None:
    folder, place = Path(sys.argv[1]), sys.argv[2]
    player = Player.on(own_spark(folder / "spark"), folder, CUT_SHORT, MERGED_FILES)
    player.begin(CUT_SHORT.live(0))
    player.run(range(1, CUT_AT))
    os.environ[VARIABLE] = place
    player.feed(CUT_AT)
    time.sleep(WAIT_SECONDS)


if __name__ == "__main__":
    main()
