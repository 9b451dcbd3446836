"""Publication: how staged output of a committed epoch becomes what readers of a sink see.

    <sink's folder>/_headrace/<query>/<epoch …>/part-0.parquet     staged, before the commit
    <sink's folder>/epoch=12/part-0-<query>-12-<race>.parquet      published, after it

It goes file by file, under names that are fixed in the commit and that no other query, epoch or
race has. A file appears whole wherever it is renamed or copied, so a reader never sees a part of
one, and to publish again what was published in part is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.engine.files import FileSystem
from headrace.engine.places import full, inside, is_plain_name
from headrace.engine.sealed import Damaged
from headrace.errors import CheckpointError

STAGING = "_headrace"


@dataclass(frozen=True)
class Publication:
    """A staged folder, and the folder in which its files appear once the epoch is committed.

    ``files`` are the names there and here; None until the epoch has written all of them.
    """

    staged: str
    final: str
    files: tuple[tuple[str, str], ...] | None = None

    @property
    def sink(self) -> str:
        """The sink's own folder, which holds both."""
        return self.final.rpartition("/")[0]

    @property
    def query(self) -> str:
        return self.staged.split("/")[-2]

    @property
    def epoch(self) -> str:
        """The epoch whose rows these are: that of the commit, unless they had to wait."""
        return self.final.rpartition("=")[2]

    def listed(self, files: FileSystem, race: str) -> Publication:
        """With the files that are staged now, and the names under which they will appear."""
        if self.files is not None:
            return self
        staged = [name for name in files.names(self.staged) if not name.startswith(("_", "."))]
        mark = f"{self.query}-{self.epoch}-{race}"
        # What Spark adds to a name tells the codec.
        pairs = ((name, f"part-{i}-{mark}{_endings(name)}") for i, name in enumerate(staged))
        return replace(self, files=tuple(pairs))

    def to_json(self) -> dict[str, Any]:
        return {
            "sink": self.sink,
            "staged": inside(self.sink, self.staged),
            "final": inside(self.sink, self.final),
            "files": self.files,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Publication:
        sink, pairs = value["sink"], [(str(staged), str(final)) for staged, final in value["files"]]
        names = [name for pair in pairs for name in pair]
        if not value["staged"].startswith(f"{STAGING}/") or not all(map(is_plain_name, names)):
            raise Damaged("it publishes what no sink has staged")
        return cls(full(sink, value["staged"]), full(sink, value["final"]), tuple(pairs))

    @classmethod
    def from_format_1(cls, value: dict[str, Any]) -> Publication:
        """As it was when folders were renamed: the files are those that are still staged."""
        found = cls(value["staged"], value["final"])
        if not inside(found.sink, found.staged).startswith(f"{STAGING}/"):
            raise Damaged("it publishes what no sink has staged")
        return found

    def publish(self, files: FileSystem) -> bool:
        """Move what is still staged to its place; the staged folder itself goes when that lasts.

        Whether all of it is there now: what is neither staged nor published was taken away.
        """
        is_whole = True
        for staged, final in self.files or ():
            source, target = f"{self.staged}/{staged}", f"{self.final}/{final}"
            try:
                if files.exists(source):
                    files.move(source, target)
                elif not files.exists(target):
                    is_whole = False
            except CheckpointError:
                # A former owner of the checkpoint may be about the same.
                if files.exists(source) or not files.exists(target):
                    raise
        return is_whole


def _endings(name: str) -> str:
    _, dot, endings = name.partition(".")
    return dot + endings
