"""How many different keys there were, from a few bits of their hashes.

A key sets one bit, which one its hash says: so a key that comes again changes nothing, and the bits
of parts are put together by OR. The number of bits that stay empty tells how many keys there were
(linear counting), to within a percent or two. Of many keys those of a share of all hashes are
enough, which costs a fraction; the share goes by how many rows there were last.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

BITS = 32_768
#: So many keys are as good as all: what rows there are beyond them is left to a share of hashes.
ENOUGH = BITS // 2


def share_for(rows: float) -> int:
    """Of how many hashes one is looked at where so many rows are expected; a power of two.

    >>> [share_for(rows) for rows in (0, 16_384, 16_385, 1_000_000)]
    [1, 1, 2, 64]
    """
    share = 1
    while rows > ENOUGH * share:
        share *= 2
    return share


def merged(parts: Sequence[bytes]) -> bytes:
    """The bits of several parts together."""
    together = 0
    for part in parts:
        together |= int.from_bytes(part, "big")
    return together.to_bytes(BITS // 8, "big")


def different_keys(bits: bytes, share: int) -> float:
    """About how many keys set these bits, if one of so many hashes was looked at.

    >>> different_keys(bytes(BITS // 8), 1), round(different_keys(b"\\x80" + bytes(4095), 8), 1)
    (0.0, 8.0)
    """
    empty = BITS - int.from_bytes(bits, "big").bit_count()
    return share * BITS * log(BITS / max(empty, 1))
