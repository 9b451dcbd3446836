"""Publication: how staged output of a committed epoch becomes what readers of a sink see.

    <sink's folder>/_headrace/<query>/<epoch …>/part-0.parquet     staged, before the commit
    <sink's folder>/epoch=12/part-0-<query>-12-<mark>.parquet      published, after it

It goes file by file, under names that are fixed in the commit and that no other query, epoch or
checkpoint has. A file appears whole wherever it is renamed or copied, so a reader never sees a part
of one, and to publish again what was published in part is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.state.places import full, inside, is_plain_name
from headrace.state.sealed import Damaged

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
        publication = cls(value["staged"], value["final"])
        if not inside(publication.sink, publication.staged).startswith(f"{STAGING}/"):
            raise Damaged("it publishes what no sink has staged")
        return publication
