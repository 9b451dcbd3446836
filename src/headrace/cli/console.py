"""Where a command's words go: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from traceback import format_exception
from types import TracebackType

from rich.console import Console
from rich.text import Text

from headrace.errors import HeadraceError
from headrace.redaction import redacted

out = Console()
err = Console(stderr=True)


def print_error(error: Exception) -> None:
    """Print one line. Spark's messages go on with the plan and the Java stack: only the first."""
    message = redacted(str(error).strip())
    if not isinstance(error, HeadraceError):
        message = message.splitlines()[0] if message else type(error).__name__
    # As Text, because names in square brackets are not markup; unwrapped, so that it is one line.
    err.print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def note(line: str) -> None:
    """Say what is going on, to people only."""
    err.print(Text(redacted(line), style="dim"), soft_wrap=True)


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """What Python prints of an error that nobody expected, without what must not be shown."""
    print(redacted("".join(format_exception(kind, error, trace))), end="", file=sys.stderr)
