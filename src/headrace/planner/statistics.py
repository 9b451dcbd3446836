"""What was learnt of streams, stores and joins while queries ran; every decision reads it.

Once an epoch is computed what it saw is taken in, and with its commit it is durable: a restart
knows what was known. Figures of what no plan uses any more are forgotten when plans change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.cost.window_joins import JoinLoad
from headrace.planner.regret import Regrets
from headrace.stats.catalog import NO_STATISTICS, Observation, Statistics
from headrace.stats.load import Load
from headrace.stats.probes import ProbeHistory

#: Of what commits hold. Figures of another version are not read: they are learnt anew.
VERSION = 1


@dataclass
class RuntimeStatistics:
    """One for all queries that share a state."""

    #: What an epoch brings to a grouping that has panes, or to an aggregation set.
    loads: dict[str, Load] = field(default_factory=dict)
    #: Rows of the last epoch, by stream.
    recent_rows: dict[str, int] = field(default_factory=dict)
    #: How many values a column of a store takes in an epoch.
    keys: dict[tuple[str, str], float] = field(default_factory=dict)
    #: The rows that a join had last, by the hash of the join.
    joins: dict[str, JoinLoad] = field(default_factory=dict)
    #: What the probes of multi-way joins found, by the hash of the join.
    probes: dict[str, ProbeHistory] = field(default_factory=dict)
    #: Rows behind the set of a table.
    table_rows: dict[str, int] = field(default_factory=dict)
    #: Rates of streams, as plans are costed by them.
    streams: Statistics = NO_STATISTICS
    #: Plans that took more work than was predicted for them, and for the written ones.
    regrets: Regrets = field(default_factory=Regrets)

    def note_load(self, name: str, seen: Load) -> None:
        before = self.loads.get(name)
        self.loads[name] = seen if before is None else before.then(seen)

    def note_keys(self, store: str, column: str, keys: float) -> None:
        before = self.keys.get((store, column))
        # Numbers of keys do not add up over epochs: a high one is slowly forgotten.
        self.keys[store, column] = keys if before is None else max(keys, (before + keys) / 2)

    def note_stream(self, name: str, seen: Observation) -> None:
        self.recent_rows[name] = seen.rows
        self.streams = self.streams.observe_stream(name, seen)

    def forget_all_but(self, used: Collection[str]) -> None:
        """Keep the figures of these stores, groupings and joins alone."""
        self.loads = {name: load for name, load in self.loads.items() if name in used}
        self.keys = {key: count for key, count in self.keys.items() if key[0] in used}
        self.joins = {name: load for name, load in self.joins.items() if name in used}
        self.probes = {name: seen for name, seen in self.probes.items() if name in used}
        self.table_rows = {name: rows for name, rows in self.table_rows.items() if name in used}
        self.regrets.forget_all_but(used)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "loads": {
                n: [load.rows, load.milliseconds, load.keys] for n, load in self.loads.items()
            },
            "recent_rows": self.recent_rows,
            "keys": [[store, column, keys] for (store, column), keys in self.keys.items()],
            "joins": {
                identity: {
                    "rates": list(load.rates),
                    "keys": [[*end, keys] for end, keys in load.keys.items()],
                    "stretch": load.stretch,
                }
                for identity, load in self.joins.items()
            },
            "probes": {identity: seen.to_json() for identity, seen in self.probes.items()},
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
            {name: Load(*load) for name, load in value["loads"].items()},
            dict(value["recent_rows"]),
            {(store, column): keys for store, column, keys in value["keys"]},
            {
                identity: JoinLoad(
                    tuple(load["rates"]),
                    {(index, position): keys for index, position, keys in load["keys"]},
                    load["stretch"],
                )
                for identity, load in value["joins"].items()
            },
            {identity: ProbeHistory.from_json(seen) for identity, seen in value["probes"].items()},
            dict(value["table_rows"]),
            Statistics.from_json(value["streams"]),
            Regrets.from_json(value.get("regrets") or ()),
        )
