"""Whatever the text: a plan or a one-line error of our own family, never a crash."""

from __future__ import annotations

import random
import re

import pytest

from headrace.errors import HeadraceError
from headrace.sql import plan_query
from headrace.sql.functions_table import known_names
from headrace.sql.refusals import REFUSALS
from tests.sql.catalog import CATALOG, TYPED
from tests.sql.test_plans import _cases
from tests.sql.test_refusals import EXAMPLES, MARK
from tests.support.seeds import Seeds

TOKEN = re.compile(r"'[^']*'|\w+|\s+|.", re.DOTALL)
QUERIES = [query for _, query, _ in _cases()] + [e.sql.replace(MARK, "") for e in EXAMPLES]
WORDS = sorted({token for query in QUERIES for token in TOKEN.findall(query) if token.strip()})


def _mutated(rng: random.Random) -> str:
    tokens = TOKEN.findall(rng.choice(QUERIES))
    for _ in range(rng.choice((1, 1, 1, 2))):
        place = rng.randrange(len(tokens)) if tokens else 0
        match rng.randrange(7):
            case 0 | 1:
                tokens[place : place + 1] = []
            case 2 | 3:
                tokens[place : place + 1] = [rng.choice(WORDS)]
            case 4 | 5:
                tokens.insert(place, f" {rng.choice(WORDS)} ")
            case _:
                other = TOKEN.findall(rng.choice(QUERIES))
                begin = rng.randrange(len(other))
                tokens[place:place] = other[begin : begin + rng.randint(1, 8)]
    return "".join(tokens)


def _refusal(text: str) -> HeadraceError | None:
    try:
        plan_query(text, CATALOG)
    except HeadraceError as error:
        return error
    except Exception as error:
        raise AssertionError(f"a crash on: {text}") from error
    return None


@pytest.mark.parametrize("seed", range(8))
def test_damaged_queries_are_planned_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    conditions = {refusal.name for refusal in REFUSALS} | {"INVALID_DURATION"}
    planned = refused = 0
    for _ in range(250):
        text = _mutated(rng)
        refusal = _refusal(text)
        planned += refusal is None
        if refusal is not None:
            refused += 1
            assert refusal.condition in conditions, f"{refusal}\n{text}"
            assert "\n" not in str(refusal), text
    assert planned > 0
    assert refused > 0


@pytest.mark.parametrize("times", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_functions_with_any_arguments_are_typed_or_refused(times: int, seeds: Seeds) -> None:
    rng = random.Random(seeds.one(0))
    values = [*TYPED.schema.names, "NULL", "'x'", "1", "2.5", "INTERVAL 1 DAY", "array()", "*"]
    for name in (*known_names(), "struct", "named_struct", "date_part", "extract", "trim", "cast"):
        for _ in range(times):
            arguments = ", ".join(rng.choices(values, k=rng.randint(0, 4)))
            for group in ("", " GROUP BY window(ts, '1 hour')"):
                refusal = _refusal(f"SELECT {name}({arguments}) AS x FROM typed{group}")
                assert refusal is None or "\n" not in str(refusal)
