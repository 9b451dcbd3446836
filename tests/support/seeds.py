"""The seeds of random tests: others every day, and the same again for who asks for them.

A run has a base, which is its day as a number unless ``--seed`` or ``HEADRACE_TEST_SEED`` says
otherwise. It is printed at the head of the run and with every random test that fails, and a run
with that base tries the same again. The names of tests do not change with it: a test asks the
fixture ``seeds`` for some that follow each other, from a place of its own.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

VARIABLE = "HEADRACE_TEST_SEED"
#: How many seeds lie between the bases of two days: more than any test uses.
_A_DAY = 1_000
#: Under which workers find the base.
_HANDED_ON = "headrace_seed"


class Seeds:
    """The seeds of one run."""

    def __init__(self, base: int) -> None:
        self.base = base

    def some(self, first: int, count: int) -> range:
        """So many seeds, from a place on; two tests that use the same places share them."""
        assert 0 <= first <= first + count <= _A_DAY
        begin = self.base * _A_DAY + first
        return range(begin, begin + count)

    def one(self, place: int) -> int:
        return self.some(place, 1)[0]

    def every(self, step: int, values: Iterable[T]) -> list[T]:
        """Every so many-th of some values, others every day."""
        return list(values)[self.base % step :: step]


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """What random tests begin from."""
    return Seeds(int(request.config.getoption("--seed")))


def some_and_slow(places: range, default: int) -> list[Any]:
    """Places as parameters of a test: those below ``default`` in every run, the others in slow
    ones."""
    return [
        place if place < default else pytest.param(place, marks=pytest.mark.slow)
        for place in places
    ]


def add_seed_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help=f"the base of the seeds of random tests; else {VARIABLE}, else the day: 20240131",
    )


class SeedPlugin:
    """Chooses the base, which the workers of pytest-xdist take from their controller."""

    def __init__(self, config: pytest.Config) -> None:
        given = getattr(config, "workerinput", {}).get(_HANDED_ON)
        if given is None:
            _choose(config)
        else:
            config.option.seed, config.option.hypothesis_seed = given
        self._base = config.option.seed
        self._hypothesis = config.option.hypothesis_seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist, which knows no options but those that were typed."""
        node.workerinput[_HANDED_ON] = (self._base, self._hypothesis)

    def pytest_report_header(self) -> str:
        return f"random tests: --seed {self._base}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        report = yield
        if report.failed and "seeds" in getattr(item, "fixturenames", ()):
            report.sections.append(("Seeds", f"the same rows again: --seed {self._base}"))
        return report


def _choose(config: pytest.Config) -> None:
    """Fill in the options that were not given."""
    options = config.option
    if options.seed is None and os.environ.get(VARIABLE):
        options.seed = int(os.environ[VARIABLE])
    if options.seed is None:
        options.seed = int(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")
    elif options.hypothesis_seed is None:
        # Without a base of our own choice Hypothesis keeps what failed, and tries that first.
        options.hypothesis_seed = str(options.seed)
