"""``explain()`` tells what runs: for random sets of queries, beside others, merged, joining late.

Before a start it tells the plan by which the engine then runs, and the stores that an epoch writes
are those that the queries were said to write. Both are looked at while queries join and leave and
while the engine is restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.engine.engine import Engine
from headrace.operators.write import Write, Written
from headrace.state.store_names import StoreKind
from tests.support.beside_others import Stage
from tests.support.in_process import in_process_session
from tests.support.query_sets import random_set
from tests.support.seeds import some_and_slow
from tests.support.stepped_engine import Circumstances, run_members
from tests.support.tally import Tally

SETS, MORE_SETS, PER_TEST = 8, 8, 8
#: How the names of stores begin that are no query's own.
STORES = tuple(f"{kind}-" for kind in StoreKind if not kind.is_of_a_query)


class Looker:
    """Compares what is told of all queries with what the engine does next."""

    def __init__(self) -> None:
        self.compared = 0
        self.shared = 0
        self._may_write: set[str] = set()

    def __call__(self, engine: Engine) -> None:
        if not engine.active:
            self._may_write = words(told(engine))
            self._watch(engine)
            return
        assert engine.plan is not None
        running = {
            name: "\n".join(step.describe() for step in engine.plan.physical.steps(name))
            for name in engine.plan.queries
        }
        assert told(engine) == running
        physical = engine.plan.physical
        used = [id(store) for op in physical.output_operators() for store in physical.stores_of(op)]
        self.shared += len(used) - len(set(used))
        self._may_write = words(running)

    def _watch(self, engine: Engine) -> None:
        """Check what every epoch writes."""
        write_all = engine.executor.write_all

        def checked(writes: Sequence[Write]) -> list[Written | Exception]:
            stores = {write.label for write in writes if write.label.startswith(STORES)}
            assert stores <= self._may_write, "an epoch writes what explain does not tell of"
            self.compared += len(stores)
            return write_all(writes)

        engine.executor.write_all = checked  # type: ignore[method-assign]


def told(engine: Engine) -> dict[str, str]:
    """The steps of every query, as ``explain`` tells them."""
    return {
        name: "\n".join(step.describe() for step in engine.explaining.beside_others(sink).steps)
        for name, sink in engine.sinks().items()
    }


def words(steps: dict[str, str]) -> set[str]:
    return {word for text in steps.values() for word in text.split()}


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(in_process_session())


@pytest.mark.random
@pytest.mark.parametrize("first", some_and_slow(range(0, SETS + MORE_SETS, PER_TEST), SETS))
def test_what_is_told_is_what_runs(first: int, stage: Stage, tally: Tally, tmp_path: Path) -> None:
    looker = Looker()
    for seed in range(first, first + PER_TEST):
        queries = random_set(seed)
        around = Circumstances(stage.settings(dict(queries.settings)), queries.restarts)
        folder = tmp_path / str(seed)
        out = run_members(stage.spark, queries.members, queries.streams, folder, around, looker)
        for answers in out.values():
            tally.add(sum(map(len, answers.values())))
    assert looker.compared >= 10 * PER_TEST
    assert looker.shared > 0, "no two queries share anything"
