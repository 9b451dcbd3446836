"""Counting, on their way into a set, what rows would be grouped by and joined by.

It is done in every epoch, whether or not the rows are grouped: a choice that is told only of what
it has chosen learns fast that it is wrong and slowly that it is right again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.definitions.definition import Sql
from headrace.definitions.key_bits import key_bits
from headrace.stats.key_bits import different_keys, share_for

#: The name under which the groups themselves are counted.
GROUPS = "groups"
_PREFIX = "keys"


def watch_keys(counted: Mapping[str, Sequence[Sql]], rows: float | None) -> dict[str, Sql]:
    """Aggregates that count the different values of columns, by name; about so many rows come."""
    share = share_for(rows or 0)
    return {
        f"{_PREFIX} {share} {name}": key_bits(columns, share)
        for name, columns in sorted(counted.items())
    }


def take_keys(seen: dict[str, Any]) -> dict[str, float]:
    """Take these counts out of what was seen."""
    counts = {}
    for name in [name for name in seen if name.startswith(f"{_PREFIX} ")]:
        _, share, counted = name.split(" ", 2)
        bits = seen.pop(name)
        if bits is not None:
            counts[counted] = different_keys(bytes(bits), int(share))
    return counts
