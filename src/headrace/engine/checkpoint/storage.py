"""What an epoch asks of the checkpoint, and how a query that goes on by itself asks it.

Stores are named by what they hold, so a query with a state of its own has stores of the same names
as others. It writes them to folders of its own. Its epochs are committed with those of the others:
it neither begins nor commits anything by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.engine.checkpoint.files import FileSystem
from headrace.names import storage_name
from headrace.state.committed import Committed, Intent
from headrace.state.publication import Publication


class Storage(Protocol):
    """Where an epoch writes, and what makes it true."""

    @property
    def root(self) -> str: ...

    @property
    def files(self) -> FileSystem: ...

    @property
    def identity(self) -> str: ...

    @property
    def mark(self) -> str: ...

    @property
    def unpublished(self) -> Mapping[Publication, str]: ...

    def files_of(self, path: str, /) -> FileSystem: ...

    def path(self, *parts: str) -> str: ...

    def new_path(self, area: str, folder: str, name: str) -> str: ...

    def staging_name(self, epoch: int) -> str: ...

    def probe(self) -> None: ...

    def begin(self, intent: Intent) -> None: ...

    def commit(self, state: Committed) -> None: ...

    def publish_again(self) -> None: ...


class BranchStorage:
    """The checkpoint, for one query that goes on by itself."""

    def __init__(self, whole: Storage, query: str) -> None:
        self._whole = whole
        self._mark = f"-of-{storage_name(query)}"

    @property
    def root(self) -> str:
        return self._whole.root

    @property
    def identity(self) -> str:
        return self._whole.identity

    @property
    def files(self) -> FileSystem:
        return self._whole.files

    @property
    def mark(self) -> str:
        return self._whole.mark

    @property
    def unpublished(self) -> Mapping[Publication, str]:
        return self._whole.unpublished

    def files_of(self, path: str) -> FileSystem:
        return self._whole.files_of(path)

    def path(self, *parts: str) -> str:
        if len(parts) < 2:
            return self._whole.path(*parts)
        area, folder, *rest = parts
        return self._whole.path(area, folder + self._mark, *rest)

    def new_path(self, area: str, folder: str, name: str) -> str:
        return self._whole.new_path(area, folder + self._mark, name)

    def staging_name(self, epoch: int) -> str:
        return self._whole.staging_name(epoch)

    def probe(self) -> None:
        self._whole.probe()

    def begin(self, intent: Intent) -> None:
        """Its epochs are those of the others."""

    def commit(self, state: Committed) -> None:
        """Its state is part of the commit of the others."""

    def publish_again(self) -> None:
        """Its output is published with that of the others."""
