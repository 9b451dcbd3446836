"""A bench of several parts, each of which can be run alone.

``HEADRACE_BENCH_CASES=drift,search`` names the parts to run; all run if it is not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from benchmarks import BenchError
from benchmarks.harness.report import Report, Setup, describe_machine
from headrace.native.compare import Case

CASES_VARIABLE = "HEADRACE_BENCH_CASES"
#: What a part finds: its cases, and its figures for the summary.
Found = tuple[list[Case], dict[str, float]]
T = TypeVar("T")
#: The parts of a bench in the order they run, and about which share of the time each takes.
Parts = Mapping[str, tuple[Callable[[T], Found], float]]


def run_parts(bench: str, setup: Setup, parts: Parts[T], given: T) -> Report:
    """Run the parts that the environment names, and report on all of them together."""
    chosen = chosen_parts(bench, parts, os.environ.get(CASES_VARIABLE, ""))
    shares = sum(parts[part][1] for part in chosen)
    cases: list[Case] = []
    summary: dict[str, float] = {}
    for part in chosen:
        find, share = parts[part]
        found, figures = find(given)
        cases += found
        summary |= figures
        setup.advance(share / shares)
    return Report(bench, setup.scale, describe_machine(setup.spark), cases, summary)


def chosen_parts(bench: str, parts: Iterable[str], text: str) -> list[str]:
    """The parts that are named, in the order they run; all if none is.

    >>> chosen_parts("any", ["one", "two", "three"], "three, one")
    ['one', 'three']
    """
    known = list(parts)
    named = {name.strip() for name in text.split(",") if name.strip()}
    unknown = sorted(named - set(known))
    if unknown:
        raise BenchError(
            f"{bench} has no part {unknown[0]!r}", hint=f"there are {', '.join(known)}"
        )
    return [part for part in known if part in named or not named]
