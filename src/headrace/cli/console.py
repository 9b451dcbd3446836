"""Where a command's words go: results to standard output, everything else to standard error."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from headrace.errors import HeadraceError

out = Console()
err = Console(stderr=True)


def print_error(error: Exception) -> None:
    """Print one line. Spark's messages go on with the plan and the Java stack: only the first."""
    message = str(error).strip()
    if not isinstance(error, HeadraceError):
        message = message.splitlines()[0] if message else type(error).__name__
    # As Text, because names in square brackets are not markup; unwrapped, so that it is one line.
    err.print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def note(line: str) -> None:
    """Say what is going on, to people only."""
    err.print(Text(line, style="dim"), soft_wrap=True)
