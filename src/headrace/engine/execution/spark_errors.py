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
# Which file it is about is said by Spark, and what is wrong with it by who is furthest down.
_READING = re.compile(r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (\S+)\. *")
_WRITING = re.compile(r"\[TASK_WRITE_FAILED\] Task failed while writing rows to (\S+)\.(?=\s)")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*")


def one_line(error: BaseException) -> str:
    """The first thing worth reading in an error, without stack trace or plan."""
    if isinstance(error, Py4JJavaError | PySparkException):
        about_file = _about_file(str(error))
        if about_file is not None:
            return _short(about_file)
    if isinstance(error, Py4JJavaError):
        causes = _CAUSE.findall(str(error))
        if causes:
            return _short(_cause(causes[-1]))
    if isinstance(error, PySparkException):
        return _short(str(error).split("\n\nJVM stacktrace")[0].split(" SQLSTATE:")[0])
    message = str(error) or type(error).__name__
    return _short(message if isinstance(error, Exception) else repr(error))


def _about_file(text: str) -> str | None:
    """What is wrong with a file that Spark could not read or write, with its name."""
    match = _READING.search(text) or _WRITING.search(text)
    if match is None:
        return None
    verb = "read" if match.re is _READING else "write"
    # Of columns that do not fit, Spark says more in its own words.
    own = _STATE.sub("", text[match.end() :].split("\n")[0]).strip().rstrip(".")
    causes = _CAUSE.findall(text)
    reason = own or (_cause(causes[-1]) if causes else "")
    plain = match[1].removeprefix("file:").removeprefix("//")
    reason = reason.replace(f"file:{plain}", "it").replace(plain, "it")
    return f"cannot {verb} {match[1]}: {reason}" if reason else f"cannot {verb} {match[1]}"


def _cause(cause: tuple[str, str]) -> str:
    kind, message = cause
    return f"{kind.rsplit('.', 1)[-1]}: {message}"


def _short(message: str, limit: int = 300) -> str:
    # Before it is cut off: of a value that is hidden no part is shown either.
    message = _TRACEBACK.sub(r"\1", redacted(message))
    message = _NOISE.sub(" ", message).strip()
    return message if len(message) <= limit else message[: limit - 1] + "…"
