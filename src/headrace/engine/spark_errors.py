"""Spark's errors, told in one line."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.redaction import redacted

_NOISE = re.compile(r"\s+")
# Of a Python traceback only the last line is worth reading: the only one not indented.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*([^\n]*)")
_CAUSE = re.compile(r"(?:Caused by: |^)([\w.$]+(?:Exception|Error)): ([^\n]+)", re.MULTILINE)


def one_line(error: BaseException) -> str:
    """The first thing worth reading in an error, without stack trace or plan."""
    if isinstance(error, Py4JJavaError):
        causes = _CAUSE.findall(str(error))
        if causes:
            kind, message = causes[-1]
            return _short(f"{kind.rsplit('.', 1)[-1]}: {message}")
    if isinstance(error, PySparkException):
        return _short(str(error).split("\n\nJVM stacktrace")[0].split(" SQLSTATE:")[0])
    message = str(error) or type(error).__name__
    return _short(message if isinstance(error, Exception) else repr(error))


def _short(message: str, limit: int = 300) -> str:
    # Before it is cut off: of a value that is hidden no part is shown either.
    message = _TRACEBACK.sub(r"\1", redacted(message))
    message = _NOISE.sub(" ", message).strip()
    return message if len(message) <= limit else message[: limit - 1] + "…"
