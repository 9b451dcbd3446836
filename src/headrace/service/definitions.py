"""What was created by request, one small file each, in the checkpoint.

    definitions/<number>.json
    definitions/leases/        which service writes them: one at a time

A definition is written and flushed before its maker is answered, and before the engine hears of it:
killed at any moment, a service that starts again finds everything that it has said yes to. One that
is to be dropped is marked so first, and deleted when a commit of the engine no longer holds the
query: so its name is free only when nothing of the old query can come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from headrace.engine.checkpoint.checkpoint import DEFINITIONS
from headrace.engine.checkpoint.files import FileSystem
from headrace.engine.checkpoint.lease import Lease
from headrace.errors import CheckpointError, Position
from headrace.failpoints import failpoint
from headrace.names import folded
from headrace.pipeline import QuerySpec, SinkSpec, StreamSpec, TableSpec, ViewSpec
from headrace.redaction import conceal_options
from headrace.state.sealed import sealed, unsealed
from headrace.statements import Kind, Spec, kind_of_spec

_FORMAT = 1
_SPECS: Mapping[Kind, Callable[..., Spec]] = {
    Kind.STREAM: StreamSpec,
    Kind.TABLE: TableSpec,
    Kind.VIEW: ViewSpec,
    Kind.QUERY: QuerySpec,
}
#: Of a spec, what is about the text that it stood in.
_PLACES = ("at", "sql_at", "sql_is_block", "sql_written", "sql_in_line")
_NOWHERE = Position(1, 1)


@dataclass(frozen=True)
class Definition:
    """Something that was created; ``number`` says in which order. Number 0 is in no file."""

    number: int
    spec: Spec
    tenant: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()
    created: str = ""
    #: Of one that is to be dropped: the epoch after which that was said.
    dropped_at: int | None = None

    @property
    def kind(self) -> Kind:
        return kind_of_spec(self.spec)

    @property
    def key(self) -> tuple[Kind, str, str]:
        """What no two definitions share; streams, tables and views have names of one kind."""
        kind = Kind.QUERY if self.kind is Kind.QUERY else Kind.STREAM
        return kind, self.tenant, folded(self.spec.name)

    def to_json(self) -> dict[str, Any]:
        spec = {name: value for name, value in asdict(self.spec).items() if name not in _PLACES}
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "spec"}
        return {"format": _FORMAT, "kind": self.kind.value, **body, "spec": spec}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Definition:
        if body["format"] != _FORMAT:
            raise ValueError(f"it is written in format {body['format']}")
        kind, given = Kind(body["kind"]), dict(body["spec"])
        if kind is Kind.QUERY:
            given["sink"] = SinkSpec(**given["sink"])
            conceal_options(given["sink"].options)
        if kind in (Kind.VIEW, Kind.QUERY):
            given |= {"sql_at": _NOWHERE, "sql_is_block": False, "sql_in_line": True}
        else:
            conceal_options(given["options"])
        return cls(
            number=body["number"],
            spec=_SPECS[kind](**given, at=_NOWHERE),
            tenant=body["tenant"],
            owner=body["owner"],
            tags=tuple(body["tags"]),
            created=body["created"],
            dropped_at=body["dropped_at"],
        )


class DefinitionFiles:
    """The files of a checkpoint; without a folder nothing is kept."""

    def __init__(self, files: FileSystem | None, root: str, lease_timeout_ms: int = 60_000) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._folder = f"{self._root}/{DEFINITIONS}"
        self._next = 1
        self._lease = None if files is None else Lease(files, self._folder, lease_timeout_ms)

    @property
    def is_durable(self) -> bool:
        return self._files is not None

    def load(self) -> list[Definition]:
        """Own the files, and give all definitions in the order in which they were made."""
        if self._files is None or self._lease is None:
            return []
        self._files.make_folder(f"{self._folder}/leases")
        # The folder's own name must outlast a power cut, too; the engine may not run yet.
        self._files.flush([], [self._root])
        self._lease.acquire(0)
        definitions = []
        for name in self._files.names(self._folder):
            if not name.endswith(".json"):
                continue
            path = f"{self._folder}/{name}"
            try:
                definition = Definition.from_json(unsealed(self._files.read(path)))
                if path != self._path(definition.number):
                    raise ValueError(f"it is that of number {definition.number}")
            except (ValueError, KeyError, TypeError) as error:
                raise CheckpointError(
                    f"{path} is damaged: {error}", hint="restore the checkpoint as a whole"
                ) from None
            definitions.append(definition)
            self._next = max(self._next, definition.number + 1)
        return sorted(definitions, key=lambda definition: definition.number)

    def close(self) -> None:
        """Let another service have them."""
        if self._lease is not None:
            self._lease.release()

    def add(self, definition: Definition) -> Definition:
        """Write a new one; with the number that it has now."""
        if self._files is None:
            return definition
        numbered = replace(definition, number=self._next)
        self._check_owner()
        failpoint("definition.before")
        if not self._files.create(self._path(numbered.number), sealed(numbered.to_json())):
            raise CheckpointError(
                f"another service has written {self._path(numbered.number)}",
                hint="see that only one runs on this checkpoint",
                condition="CHECKPOINT_IN_USE",
            )
        self._next += 1
        failpoint("definition.after")
        return numbered

    def mark_dropped(self, definition: Definition, epoch: int) -> Definition:
        """Note that it is to go; it is there until the engine has let go of it."""
        marked = replace(definition, dropped_at=epoch)
        if self._files is not None and marked.number:
            self._check_owner()
            self._files.write(self._path(marked.number), sealed(marked.to_json()))
            failpoint("dropping.after")
        return marked

    def delete(self, definition: Definition) -> None:
        if self._files is not None and definition.number:
            failpoint("dropped.before")
            self._files.delete(self._path(definition.number))
            self._files.flush([], [self._folder])

    def _check_owner(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:010d}.json"
