"""Makes the lists of pairs that are made by rewriting: ``python -m tests.merge.make_pairs``.

Every pair is judged by DuckDB before it is written down: those that mean the same must give the
same, and of a near miss some rows must tell.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.errors import HeadraceError
from tests.merge.text_rewrites import changed, rewritten
from tests.merge.written import FIXTURES, planned, told_apart

SAME_FOR_EACH = 6
NEAR_MISSES = 2_000


def seeds() -> list[str]:
    lines = (FIXTURES / "seeds.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def same_pairs() -> Iterator[tuple[str, str]]:
    for seed in seeds():
        others: dict[str, None] = {}
        number = 0
        while len(others) < SAME_FOR_EACH:
            number += 1
            other = rewritten(seed, random.Random(f"same {number} {seed}"))
            assert not told_apart(seed, other), (seed, other)
            others[other] = None
        yield from ((seed, other) for other in others)


def near_misses() -> Iterator[tuple[str, str]]:
    """Each seed in turn, changed once and then written otherwise."""
    written: set[tuple[str, str]] = set()
    number = 0
    while len(written) < NEAR_MISSES:
        number += 1
        for seed in seeds():
            chance = random.Random(f"other {number} {seed}")
            other = changed(seed, chance)
            if number % 3:
                other = rewritten(other, chance, steps=number % 3)
            if (seed, other) in written or not _is_a_query(other):
                continue
            if told_apart(seed, other):
                written.add((seed, other))
                yield seed, other
                if len(written) == NEAR_MISSES:
                    return


def _is_a_query(sql: str) -> bool:
    try:
        planned(sql)
    except HeadraceError:
        return False
    return True


def grouped(pairs: Iterator[tuple[str, str]], title: str) -> str:
    """A seed, and indented below it all that is compared with it."""
    by_seed: dict[str, list[str]] = {}
    for seed, other in pairs:
        by_seed.setdefault(seed, []).append(other)
    lines = [f"# {title} Made by tests/merge/make_pairs.py."]
    for seed, others in by_seed.items():
        lines += [seed, *(f"    {other}" for other in others)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    title = "Queries, and below each the same written otherwise."
    (FIXTURES / "same_rewritten.txt").write_text(grouped(same_pairs(), title))
    title = "Queries, and below each such that are near and mean something else."
    (FIXTURES / "near_misses.txt").write_text(grouped(near_misses(), title))
