"""Small JSON files that know whether they are whole.

A sealed text is one JSON object whose last member is the checksum of all that stands before it. It
is still plain JSON, for people who look into it; a text that was cut off or changed is noticed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_MARK = ',"checksum":"'
_LENGTH = len(_MARK) + 64 + len('"}')


class Damaged(ValueError):
    """A text that is not what was written."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(body: dict[str, Any]) -> str:
    """The object as text, with its checksum.

    >>> unsealed(sealed({"epoch": 3}))
    {'epoch': 3}
    """
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]}{_MARK}{digest(text)}"}}'


def unsealed(text: str) -> dict[str, Any]:
    """The object, or Damaged.

    >>> unsealed(sealed({"epoch": 3}).replace("3", "4", 1))
    Traceback (most recent call last):
    headrace.state.sealed.Damaged: the checksum does not fit
    """
    whole, seal = text[:-_LENGTH] + "}", text[-_LENGTH:]
    if seal != f'{_MARK}{digest(whole)}"}}':
        raise Damaged("the checksum does not fit")
    body = json.loads(whole)
    if not isinstance(body, dict):
        raise Damaged("it is not an object")
    return body
