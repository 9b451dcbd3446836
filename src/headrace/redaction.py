"""What is not shown: values that came from the environment, and what looks like a secret.

Whatever Headrace prints, raises or logs goes through ``redacted``. It hides the values that this
process was told to ``conceal``, wherever they turn up in a text, and passwords in URLs and in
``password=…`` whoever wrote them. Options are shown by ``shown_option``, which goes by their keys.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"

#: A shorter value is no secret, and would be found in half of all words.
_SHORTEST = 4
#: Nor are these, of which texts are full.
_WORDS = frozenset({"true", "false", "null", "none", "auto"})
_SAYS_SECRET = re.compile(
    r"pass(word|wd|phrase)|\bpwd\b|secret|token|credential|jaas|signature", re.IGNORECASE
)
_LOOKS_SECRET = re.compile(rf"{_SAYS_SECRET.pattern}|key", re.IGNORECASE)
#: Keys are part of the names of harmless options as well, whose values are words.
_LONG = 8
#: Passwords may hold any sign; what begins with a number and a slash is a port and a path.
_IN_URL = re.compile(r"(?P<user>\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:'\"]*):(?!\d+/)[^\s'\"]+@")
_ASSIGNED = re.compile(
    r"(?P<key>[\w.-]*(?:pass(?:word|wd|phrase)|secret|token|credential|signature"
    r"|(?:api|access|account)[_.-]?key)[\w.-]*|\b(?:pwd|sig))="
    r"(?:\"[^\"]*\"|'[^']*'|[^\s&;,'\")\]]+)",
    re.IGNORECASE,
)

_concealed: set[str] = set()
_pattern: re.Pattern[str] | None = None


def conceal(values: Iterable[str]) -> None:
    """Hide these values from now on, in this whole process."""
    global _pattern
    _concealed.update(values)
    _pattern = _pattern_of(_concealed)


def redacted(text: str, also: Iterable[str] = ()) -> str:
    """The text without what must not be shown; ``also`` are values that are hidden here only.

    >>> redacted("cannot reach jdbc://me:hunter2@db/?password=x1y2", also=["db/"])
    'cannot reach jdbc://me:***@db/?password=***'
    >>> redacted("no topic 'orders-77'", also=["orders-77"])
    "no topic '***'"
    """
    pattern = _pattern_of({*_concealed, *also}) if also else _pattern
    return without_passwords(text if pattern is None else pattern.sub(HIDDEN, text))


def without_passwords(text: str) -> str:
    """The text without what looks like a password by itself."""
    return _ASSIGNED.sub(rf"\g<key>={HIDDEN}", _IN_URL.sub(rf"\g<user>:{HIDDEN}@", text))


def redacted_json(value: Any) -> Any:
    """The same for all texts in a JSON value; its keys stay."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_json(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_json(below) for below in value]
    return value


def looks_secret(key: str) -> bool:
    """Whether an option's value is nobody's business, to go by its key.

    >>> looks_secret("fs.s3a.secret.key"), looks_secret("maxFilesPerTrigger")
    (True, False)
    """
    return _LOOKS_SECRET.search(key) is not None


def conceal_options(options: Mapping[str, str]) -> None:
    """Hide the values of options that look secret wherever they turn up."""
    conceal(
        value
        for key, value in options.items()
        if looks_secret(key) and (_SAYS_SECRET.search(key) or len(value) >= _LONG)
    )


def shown_option(key: str, value: str) -> str:
    """
    >>> shown_option("sslKeyPassword", "hunter2"), shown_option("header", "true")
    ('***', 'true')
    """
    return HIDDEN if looks_secret(key) else redacted(value)


class RedactedLog(logging.Filter):
    """Lets every record through, without what must not be shown."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage()), ()
        return True


def _pattern_of(values: Iterable[str]) -> re.Pattern[str] | None:
    """What finds any of some values, the longest first."""
    wanted = {form for value in values for form in _forms(value)}
    if not wanted:
        return None
    return re.compile("|".join(map(_exactly, sorted(wanted, key=lambda v: (-len(v), v)))))


def _exactly(value: str) -> str:
    # A number that is part of a longer one is another number.
    return rf"(?<!\d){value}(?!\d)" if value.isdecimal() else re.escape(value)


def _forms(value: str) -> set[str]:
    """A value as it stands in texts: in one line, in quotes, as part of a path, line by line."""
    forms = {value, value.strip(), " ".join(value.split()), *map(str.strip, value.splitlines())}
    if "/" in value:
        forms |= {value.rstrip("/"), posixpath.normpath(value)}
    for form in list(forms):
        forms |= {repr(form)[1:-1], form.replace("'", "''"), form.replace('"', '\\"')}
        forms.add(form.replace("\\", "\\\\").replace('"', '\\"'))
    return {form for form in forms if len(form) >= _SHORTEST and form.lower() not in _WORDS}


logging.getLogger("headrace").addFilter(RedactedLog())
