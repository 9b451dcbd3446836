"""Names that users give: which are accepted, when two are the same, and how they are stored.

A name keeps its case and is compared without it, as in Spark. Streams and tables go by their
``folded`` names in plans and in the state, so that nobody there need think of case; their
``spelling`` is what people see. Names of queries and columns stay as they are.

Wherever a name becomes part of a path or of a view, it goes through ``storage_name``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

#: Longer names are refused: nobody could read them, and Spark's own catalogs end there as well.
LONGEST = 255

#: How the names of columns begin that the engine adds to those of users.
OWN_NAMES = "__"

# What folders and views can be named as it is. A file name has at most 255 bytes, and a store adds
# some forty of its own.
_PLAIN = re.compile(r"[a-z0-9_-]{1,200}")
_DIGESTED = re.compile(r".*_x[0-9a-f]{16}")


@lru_cache(maxsize=65_536)
def folded(name: str) -> str:
    """What two names have in common that differ in case only, letter by letter as in Java.

    >>> folded("Bids"), folded("ÉTÉ"), folded("Straße") == folded("STRASSE")
    ('bids', 'été', False)
    """
    if name.isascii():
        return name.lower()
    return "".join(_folded_letter(letter) for letter in name)


def _folded_letter(letter: str) -> str:
    # Java compares the lower case of upper cases, and knows only those of a single letter.
    upper = letter.upper()
    lower = (upper if len(upper) == 1 else letter).lower()
    return lower if len(lower) == 1 else lower[0]


def spelling(name: str) -> str:
    """How people write a name that goes by another one inside; nothing where it is the same."""
    return "" if name == folded(name) else name


def same_name(one: str, other: str) -> bool:
    return folded(one) == folded(other)


def known_as(name: str, names: Iterable[str]) -> str | None:
    """The one of some names that this name means."""
    wanted = folded(name)
    return next((candidate for candidate in names if folded(candidate) == wanted), None)


def first_twice(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that are the same but for their case."""
    seen: dict[str, str] = {}
    for name in names:
        key = folded(name)
        if key in seen:
            return seen[key], name
        seen[key] = name
    return None


def storage_name(name: str) -> str:
    """The name as part of a path or of a view: short, plain, and of no other name.

    Plain names in lower case are stored as they are. Of all others what is plain is kept for people
    to read, with a digest that tells names apart which have that in common.

    >>> storage_name("bids"), storage_name("Bids")
    ('bids', 'bids')
    >>> storage_name("größe")
    'gr__e_xd353a2671b67afff'
    """
    same = folded(name)
    if _PLAIN.fullmatch(same) and not _DIGESTED.fullmatch(same):
        return same
    readable = re.sub(r"[^a-z0-9_-]", "_", same)[:40]
    return f"{readable}_x{hashlib.sha256(same.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def quoted(name: str) -> str:
    """A name as Spark's SQL and column expressions take it, whatever it is made of.

    >>> quoted("a`b c")
    '`a``b c`'
    """
    return "`" + name.replace("`", "``") + "`"


def relation_name_advice(name: str) -> str | None:
    """What to do about a name that no stream, table or view can have; None if it is a good one."""
    if not name or not all(_is_word(letter) for letter in name):
        return "use letters, digits and '_'"
    return _length_advice(name)


def query_name_advice(name: str) -> str | None:
    """What to do about a name that no query can have; None if it is a good one."""
    if not name or not all(_is_word(letter) or letter == "-" for letter in name):
        return "use letters, digits, '_' and '-'"
    return _length_advice(name)


def _is_word(letter: str) -> bool:
    """Letters, digits and marks of any script."""
    return letter.isalnum() or f"_{letter}".isidentifier()


def _length_advice(name: str) -> str | None:
    return f"use at most {LONGEST} letters" if len(name) > LONGEST else None
