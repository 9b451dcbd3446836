"""Arrangements: the shared, durable state, as lists of Parquet files.

An arrangement is a set of immutable files, each written by one epoch (or merged from several).
Which files belong to it is part of the commit, so a file that a crashed epoch left behind is
never read. Each file knows the span of time it holds: readers skip files outside the span they
need, and a file that ends before the retention horizon is dropped whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Split:
    """Which rows of a whole are in a part: those whose column's hash is ``part`` modulo ``parts``.

    ``hashing`` names the hash function, since another version may have another.
    """

    column: str
    parts: int
    part: int
    hashing: str


@dataclass(frozen=True)
class StateFile:
    """One file. ``first`` and ``last`` bound the times in it (ms); None where it has none.

    ``level`` counts how often its rows were merged into a larger file; ``split`` says which rows
    it holds, where it does not hold rows of all keys. ``since`` is the first epoch of its rows
    where that is not ``epoch``, the last one.
    """

    path: str
    epoch: int
    rows: int
    size: int
    first: int | None
    last: int | None
    level: int = 0
    split: Split | None = None
    since: int | None = None

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch that it may hold rows of."""
        return self.epoch if self.since is None else self.since, self.epoch

    def overlaps(self, first: int | None, last: int | None) -> bool:
        """Whether it may hold times of this span; None leaves a side open."""
        if self.first is None or self.last is None:
            return True
        return (last is None or self.first <= last) and (first is None or self.last >= first)


@dataclass
class Arrangement:
    """The files of one arrangement at the current epoch.

    ``recent_rows`` is how many rows the last append wrote, by which the next one is planned.
    """

    name: str
    files: list[StateFile] = field(default_factory=list)
    recent_rows: int | None = None

    def before(self, epoch: int) -> list[StateFile]:
        """What earlier epochs wrote."""
        return [file for file in self.files if file.epoch < epoch]

    def of(self, epoch: int) -> list[StateFile]:
        """What this epoch wrote."""
        return [file for file in self.files if file.epoch == epoch]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def expired(self, horizon: int | None) -> list[StateFile]:
        """Files whose every row lies below the horizon."""
        if horizon is None:
            return []
        return [file for file in self.files if file.last is not None and file.last < horizon]

    def replace(self, old: Iterable[StateFile], new: Iterable[StateFile]) -> None:
        gone = {file.path for file in old}
        self.files = [file for file in self.files if file.path not in gone] + list(new)

    def mergeable(self, limit: int) -> list[StateFile]:
        """The files of the lowest level to which so many epochs have added; empty where none is."""
        levels = sorted({file.level for file in self.files})
        for level in levels:
            same = [file for file in self.files if file.level == level]
            if len({file.epoch for file in same}) >= limit:
                return same
        return []

    def append(self, files: Iterable[StateFile]) -> None:
        """Take the files of one append."""
        added = list(files)
        self.files += added
        self.recent_rows = sum(file.rows for file in added)

    def to_json(self) -> dict[str, Any]:
        return {"files": [asdict(file) for file in self.files], "recent_rows": self.recent_rows}

    @classmethod
    def from_json(cls, name: str, value: dict[str, Any]) -> Arrangement:
        files = [
            StateFile(**{**file, "split": Split(**file["split"]) if file.get("split") else None})
            for file in value["files"]
        ]
        return cls(name, files, value["recent_rows"])


def span(files: Iterable[StateFile]) -> tuple[int, int] | None:
    """The least span of time that holds all rows of the files, or None without any."""
    spans = [(f.first, f.last) for f in files if f.first is not None and f.last is not None]
    if not spans:
        return None
    return min(first for first, _ in spans), max(last for _, last in spans)
