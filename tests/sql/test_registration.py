"""A query that is registered can run: it is optimized and compiled, in its natural output mode."""

from __future__ import annotations

import random

import pytest

from headrace.compiler.planning import plan_all
from headrace.errors import HeadraceError, PlanError
from headrace.optimizer import optimize
from headrace.plan.nodes import Node, OutputMode, Sink
from headrace.plan.output_modes import natural_mode, output_modes
from headrace.planner.live_query import LiveQuery
from headrace.registration import check_plan
from headrace.sql import plan_query
from tests.sql.catalog import CATALOG
from tests.sql.test_robustness import _mutated
from tests.support.queries import random_case
from tests.support.registering import registered

LANDMARK = "SELECT count(*) AS n FROM bids GROUP BY landmark(ts)"
SESSION = "SELECT count(*) AS n FROM bids GROUP BY session_window(ts, '5 minutes')"
WINDOW = "SELECT count(*) AS n FROM bids GROUP BY window(ts, '5 minutes')"


def _compiles(plan: Node, mode: OutputMode) -> bool:
    try:
        plan_all([LiveQuery(Sink(optimize(plan).plan, "q", "results", mode), None)])
    except HeadraceError:
        return False
    return True


def _condition(text: str) -> str | None:
    try:
        registered(text, CATALOG)
    except HeadraceError as error:
        return error.condition
    return None


@pytest.mark.random
@pytest.mark.parametrize("seed", range(150))
def test_random_queries_are_registered(seed: int) -> None:
    case = random_case(seed)
    plan = registered(case.query.sql, case.catalog)
    assert _compiles(plan, case.query.mode)


@pytest.mark.random
@pytest.mark.parametrize("seed", range(4))
def test_damaged_queries_fail_at_registration_or_not_at_all(seed: int) -> None:
    """What a broken query is refused with comes from the SQL layer, so the compiler finds
    nothing that it did not know."""
    rng = random.Random(1_000 + seed)
    for _ in range(200):
        text = _mutated(rng)
        # Errors of the planner and the compiler have these.
        assert _condition(text) not in ("INVALID_PLAN", "INVALID_QUERY"), text


@pytest.mark.parametrize(
    ("sql", "modes"),
    [
        (LANDMARK, {OutputMode.UPDATE}),
        (SESSION, {OutputMode.APPEND}),
        (WINDOW, {OutputMode.APPEND, OutputMode.UPDATE}),
        (f"{WINDOW} UNION ALL {SESSION}", {OutputMode.APPEND}),
        (f"{LANDMARK} UNION ALL {WINDOW}", {OutputMode.UPDATE}),
        (f"SELECT p.id FROM ({LANDMARK}) x JOIN person p ON p.id = x.n", {OutputMode.UPDATE}),
        (
            "SELECT count(*) AS n FROM (SELECT window AS w FROM bids GROUP BY "
            "session_window(ts, '5 minutes')) GROUP BY window(w, '1 hour')",
            {OutputMode.APPEND, OutputMode.UPDATE},
        ),
    ],
)
def test_output_modes_are_those_that_compile(sql: str, modes: set[OutputMode]) -> None:
    plan = registered(sql, CATALOG)
    assert output_modes(plan) == modes
    assert natural_mode(plan) in modes
    # The compiler itself refuses sessions in update mode; a landmark in append mode it would run.
    assert _compiles(plan, OutputMode.UPDATE) == (OutputMode.UPDATE in modes)


def test_what_the_compiler_alone_knows_gets_the_place_of_its_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Should the compiler refuse a plan that was thought right, the error still points."""
    text = "SELECT 1 AS x FROM clicks UNION ALL SELECT b.n::int FROM (" + WINDOW + ") b"
    parsed = plan_query(text, CATALOG)

    def refuses(*arguments: object) -> None:
        raise PlanError("no such operator", hint="write another query")

    monkeypatch.setattr("headrace.compiler.compile.Compiler._aggregate", refuses)
    with pytest.raises(PlanError, match="no such operator") as caught:
        check_plan(parsed.plan, parsed.places)
    place = caught.value.position
    assert place is not None
    assert (place.line, place.column) == (1, text.index("GROUP BY") + 1)
    assert caught.value.hint == "write another query"
