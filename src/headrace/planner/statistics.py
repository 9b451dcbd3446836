"""What was learnt of streams, stores and joins while queries ran; every decision reads it.

Once an epoch is computed what it saw is taken in, and with its commit it is durable: a restart
knows what was known. Figures of what no plan uses any more are forgotten when plans change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.cost.window_joins import JoinLoad
from headrace.planner.regret import Regrets
from headrace.stats.catalog import NO_STATISTICS, Observation, Statistics
from headrace.stats.load import (
    JUMP,
    TELLING,
    Load,
    SeenLength,
    SeenSet,
    estimated_keys,
    followed_keys,
    jumped,
)
from headrace.stats.moving_window import MovingWindow, Stretch
from headrace.stats.probes import ProbeHistory

#: Of what commits hold. Figures of another version are not read: they are learnt anew.
VERSION = 3
#: So many values of a key are known by name, those that so many times the usual rows have.
MOST_FREQUENT, FREQUENT = 16, 2.0
#: A value that fewer than one row in so many has is not frequent.
_FEW_ROWS = 1_000
#: A load that jumps is believed at once if it has not jumped for so many epochs.
STEADY = 4


def least_frequent(rows: int) -> int:
    """How many rows must have a value for it to be frequent; in a part of the rows as well, so that
    one that is spread over ten parts is found if a hundredth has it.

    >>> least_frequent(500), least_frequent(1_000_000)
    (2, 1000)
    """
    return max(2, rows // _FEW_ROWS)


@dataclass(frozen=True)
class Match:
    """What was seen of joining a set of inputs: the share of the combinations of rows whose times
    fit that came out, and in which epoch."""

    share: float
    epoch: int


@dataclass(frozen=True)
class SetMatch:
    """How many times the rows came out of a join of sets that would if keys were equally likely,
    and in which epoch."""

    factor: float
    epoch: int


@dataclass(frozen=True)
class Jump:
    """An epoch that was unlike those before it, and how many have come since."""

    load: Load
    age: int = 0


@dataclass
class RuntimeStatistics:
    """One for all queries that share a state."""

    #: What an epoch brings to a grouping that has panes.
    loads: dict[str, Load] = field(default_factory=dict)
    #: What it brings to an aggregation set, and what the window of one holds that moves.
    sets: dict[str, Load] = field(default_factory=dict)
    moving: dict[str, MovingWindow] = field(default_factory=dict)
    #: Rows of the last epoch, by stream.
    recent_rows: dict[str, int] = field(default_factory=dict)
    #: How many values a column of a store takes in an epoch.
    keys: dict[tuple[str, str], float] = field(default_factory=dict)
    #: The rows that a join had last, by the hash of the join.
    joins: dict[str, JoinLoad] = field(default_factory=dict)
    #: What came out of the steps of a join when they ran, by the hash of the join and the inputs.
    matches: dict[str, dict[frozenset[int], Match]] = field(default_factory=dict)
    #: The most frequent values of a column of a store, with the share of rows that have each.
    frequent: dict[tuple[str, str], dict[Hashable, float]] = field(default_factory=dict)
    #: The share of the rows of a store that a filter leaves, by its text.
    shares: dict[tuple[str, str], float] = field(default_factory=dict)
    #: What the probes of multi-way joins found, by the hash of the join.
    probes: dict[str, ProbeHistory] = field(default_factory=dict)
    #: What came out of joins of sets, by the hash of the aggregate and the inputs aggregated early.
    set_matches: dict[str, dict[frozenset[int], SetMatch]] = field(default_factory=dict)
    #: How unequal the groups of a set are, when its rows were grouped last.
    skews: dict[str, float] = field(default_factory=dict)
    #: Rows behind the set of a table.
    table_rows: dict[str, int] = field(default_factory=dict)
    #: Rates of streams, as plans are costed by them.
    streams: Statistics = NO_STATISTICS
    #: Plans that took more work than was predicted for them, and for the written ones.
    regrets: Regrets = field(default_factory=Regrets)
    #: When loads last were unlike what they used to be; not durable.
    jumps: dict[str, Jump] = field(default_factory=dict)

    def note_load(self, name: str, seen: Load) -> bool:
        """Take in what an epoch brought; whether it is not what epochs used to bring.

        What lasts is smoothed. An epoch that is unlike those before it begins a new past, unless
        such epochs come again and again, as noise does: then only two that are alike.
        """
        before, jump = self.loads.get(name), self.jumps.get(name)
        if before is None:
            self.loads[name] = seen
            return False
        if not before.is_unlike(seen):
            self.loads[name] = before.then(seen)
            if jump is not None:
                self.jumps[name] = Jump(jump.load, jump.age + 1)
            return False
        is_new = jump is None or jump.age >= STEADY or not jump.load.is_unlike(seen)
        self.jumps[name] = Jump(seen)
        self.loads[name] = seen if is_new else before.then(seen)
        return is_new

    def note_set(self, name: str, seen: SeenSet) -> None:
        before = self.sets.get(name)
        load = self.sets[name] = seen.load if before is None else before.followed_by(seen)
        if seen.skew is not None:
            self.skews[name] = seen.skew
        if seen.entered is not None:
            jump = before is not None and jumped(
                before.keys, seen.rows, seen.groups, seen.load.keys
            )
            came = Stretch(seen.entered.first, seen.entered.last, seen.rows, load.keys)
            window = self.moving.get(name, MovingWindow())
            self.moving[name] = window.moved(seen.begins, came, jump)
        for column, different in seen.keys.items():
            before_keys = self.keys.get((name, column))
            # Panes are joined as they are. In a window that moves there are rows of many epochs.
            is_pane = seen.entered is None
            keys = different if is_pane else estimated_keys(seen.rows, different, 1)
            if before_keys is not None:
                keys = followed_keys(before_keys, seen.rows, different, keys)
            self.keys[name, column] = keys

    def note_keys(self, store: str, column: str, keys: float) -> None:
        before = self.keys.get((store, column))
        # Numbers of keys do not add up over epochs: a high one is slowly forgotten.
        self.keys[store, column] = keys if before is None else max(keys, (before + keys) / 2)

    def note_frequent(
        self, store: str, column: str, counted: Iterable[tuple[str, int]], rows: int
    ) -> None:
        """Values with the rows that have them, of so many in all; parts of them may come apart."""
        rows_of: Counter[str] = Counter()
        for value, count in counted:
            rows_of[value] += count
        # The others are alike: only values of more than their share are worth a name.
        usual = rows / max(1.0, self.keys.get((store, column), 1.0))
        self.frequent[store, column] = {
            value: count / rows
            for value, count in rows_of.most_common(MOST_FREQUENT)
            if count > FREQUENT * usual and count >= least_frequent(rows)
        }

    def note_share(self, store: str, filtered: str, passed: int, rows: int) -> None:
        """Of so many rows a filter has left some. That it left none is no proof that it never
        will."""
        if not rows:
            return
        seen = max(passed, 0.5) / rows
        before = self.shares.get((store, filtered), seen)
        # What lasts is smoothed, and what is different is believed.
        differs = not 1 / JUMP <= seen / before <= JUMP and rows >= TELLING
        self.shares[store, filtered] = seen if differs else (before + seen) / 2

    def share_of(self, store: str, filtered: str) -> float:
        """The share of rows that a filter leaves; all where nothing is known of it."""
        return self.shares.get((store, filtered), 1.0)

    def note_stream(self, name: str, seen: Observation) -> None:
        self.recent_rows[name] = seen.rows
        self.streams = self.streams.observe_stream(name, seen)

    def forget_all_but(self, used: Collection[str]) -> None:
        """Keep the figures of these stores, groupings and joins alone."""
        self.loads = {name: load for name, load in self.loads.items() if name in used}
        self.jumps = {name: jump for name, jump in self.jumps.items() if name in used}
        self.sets = {name: load for name, load in self.sets.items() if name in used}
        self.moving = {name: window for name, window in self.moving.items() if name in used}
        self.keys = {key: count for key, count in self.keys.items() if key[0] in used}
        self.joins = {name: load for name, load in self.joins.items() if name in used}
        self.matches = {name: seen for name, seen in self.matches.items() if name in used}
        self.frequent = {key: some for key, some in self.frequent.items() if key[0] in used}
        self.shares = {key: share for key, share in self.shares.items() if key[0] in used}
        self.probes = {name: seen for name, seen in self.probes.items() if name in used}
        self.set_matches = {name: seen for name, seen in self.set_matches.items() if name in used}
        self.skews = {name: skew for name, skew in self.skews.items() if name in used}
        self.table_rows = {name: rows for name, rows in self.table_rows.items() if name in used}
        self.regrets.forget_all_but(used)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "loads": {
                n: [load.rows, load.milliseconds, load.keys, [list(one) for one in load.seen]]
                for n, load in self.loads.items()
            },
            "sets": {n: [load.rows, load.milliseconds, load.keys] for n, load in self.sets.items()},
            "moving": {name: window.to_json() for name, window in self.moving.items()},
            "recent_rows": self.recent_rows,
            "keys": [[store, column, keys] for (store, column), keys in self.keys.items()],
            "joins": {
                identity: {
                    "rates": list(load.rates),
                    "keys": [[*end, keys] for end, keys in load.keys.items()],
                    "stretch": load.stretch,
                    "shares": [[position, share] for position, share in load.shares.items()],
                    "frequent": [[*end, dict(some)] for end, some in load.frequent.items()],
                    "seen": [[sorted(inputs), rows] for inputs, rows in load.seen.items()],
                }
                for identity, load in self.joins.items()
            },
            "matches": {
                identity: [[sorted(inputs), one.share, one.epoch] for inputs, one in seen.items()]
                for identity, seen in self.matches.items()
            },
            "frequent": [[*key, some] for key, some in self.frequent.items()],
            "shares": [[*key, share] for key, share in self.shares.items()],
            "probes": {identity: seen.to_json() for identity, seen in self.probes.items()},
            "set_matches": {
                identity: [[sorted(early), one.factor, one.epoch] for early, one in seen.items()]
                for identity, seen in self.set_matches.items()
            },
            "skews": self.skews,
            "table_rows": self.table_rows,
            "streams": self.streams.to_json(),
            "regrets": self.regrets.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> RuntimeStatistics:
        """What a commit holds; nothing where it holds nothing, or what this version cannot read."""
        if not value or value.get("version") != VERSION:
            return cls()
        return cls(
            {
                name: Load(rows, length, keys, tuple(SeenLength(*one) for one in seen))
                for name, (rows, length, keys, seen) in value["loads"].items()
            },
            {name: Load(*load) for name, load in value["sets"].items()},
            {name: MovingWindow.from_json(held) for name, held in value["moving"].items()},
            dict(value["recent_rows"]),
            {(store, column): keys for store, column, keys in value["keys"]},
            {
                identity: JoinLoad(
                    tuple(load["rates"]),
                    {(index, position): keys for index, position, keys in load["keys"]},
                    load["stretch"],
                    dict(load.get("shares", ())),
                    {(index, position): some for index, position, some in load.get("frequent", ())},
                    {frozenset(inputs): rows for inputs, rows in load.get("seen", ())},
                )
                for identity, load in value["joins"].items()
            },
            {
                identity: {frozenset(inputs): Match(share, at) for inputs, share, at in seen}
                for identity, seen in value.get("matches", {}).items()
            },
            {(store, name): some for store, name, some in value.get("frequent", ())},
            {(store, filtered): share for store, filtered, share in value["shares"]},
            {identity: ProbeHistory.from_json(seen) for identity, seen in value["probes"].items()},
            {
                identity: {frozenset(early): SetMatch(factor, at) for early, factor, at in seen}
                for identity, seen in value["set_matches"].items()
            },
            dict(value["skews"]),
            dict(value["table_rows"]),
            Statistics.from_json(value["streams"]),
            Regrets.from_json(value.get("regrets") or ()),
        )
