"""The processes of chaos as the harness has them: started, asked, paused and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.failpoints import VARIABLE

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE = 180


class Process:
    """A child; its output is a file, and its JVM is of the same process group."""

    def __init__(
        self,
        command: str,
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        place: str | None = None,
    ) -> None:
        self.log = log
        with open(log, "w") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.crashes.chaos_child", command, str(folder)],
                cwd=REPOSITORY,
                env={**environment, **({} if place is None else {VARIABLE: place})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> int | None:
        return self._popen.poll()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, word: str) -> bool:
        return any(line.startswith(word) for line in self.said().splitlines())

    def wait(self) -> int:
        return self._popen.wait(PATIENCE)

    def kill(self, alone: bool = False) -> None:
        """As ``kill -9``: of all its group, or of the Python process only."""
        with suppress(ProcessLookupError):
            if alone:
                self._popen.kill()
            else:
                os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(PATIENCE)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing of it moves meanwhile."""
        os.killpg(self._popen.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGCONT)
