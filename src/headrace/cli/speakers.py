"""Who does the statements of a shell: a service, or an engine in this process."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.statements import parse_statement

if TYPE_CHECKING:
    from headrace.client import Connection
    from headrace.service.commands import Commands
    from headrace.service.workspace import Workspace

Told = dict[str, Any]
#: How long (seconds) a statement waits for the engine to come to it.
_PATIENCE = 120.0


class Speaker(ABC):
    """Does one statement after the other."""

    @abstractmethod
    def do(self, text: str) -> Told:
        """What came of it: ``message``, ``things`` and ``text``."""

    def names(self) -> list[str]:
        """All names that a statement may have, for completion."""
        names: set[str] = set()
        for kind in ("STREAMS", "TABLES", "VIEWS", "QUERIES"):
            with suppress(HeadraceError):
                names.update(thing["name"] for thing in self.do(f"SHOW {kind}")["things"])
        return sorted(names)


class Remote(Speaker):
    """A service."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def do(self, text: str) -> Told:
        # What cannot be read is said here, at once and in the same words.
        parse_statement(text)
        return self._connection.execute(text)


class Embedded(Speaker):
    """An engine in this process, for whoever runs it."""

    def __init__(self, workspace: Workspace, commands: Commands) -> None:
        self._workspace, self._commands = workspace, commands

    def do(self, text: str) -> Told:
        from headrace.service.rights import HOUSE

        statement = parse_statement(text)
        answer = self._commands.do(lambda: self._workspace.do(statement, HOUSE))
        if answer.pending is not None:
            answer.pending.result(_PATIENCE)
        return {"message": answer.message, "things": answer.things, "text": answer.text}


@contextmanager
def embedded(checkpoint: str | None, debug: bool) -> Iterator[Embedded]:
    """An engine with all that its checkpoint knows; without one it lives as long as the shell."""
    from headrace.cli.spark import spark_session
    from headrace.service.commands import Commands
    from headrace.service.limits import Limits
    from headrace.service.workspace import open_workspace

    with (
        tempfile.TemporaryDirectory(prefix="headrace-sql-") as scratch,
        spark_session("headrace sql", debug=debug) as spark,
    ):
        workspace = open_workspace(spark, checkpoint or f"{scratch}/checkpoint")
        commands = Commands(Limits().waiting_commands, workspace.life.tick)
        commands.start()
        try:
            yield Embedded(workspace, commands)
        finally:
            commands.end()
            workspace.close()
