"""Plans survive JSON exactly, and their hashes are the same in every process."""

from __future__ import annotations

import datetime
import json
import math
import subprocess
import sys
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.plan.expressions import Call, Cast, Column, Expr, Literal, Named
from headrace.plan.json import VERSION, from_json, plan_hash, to_json
from headrace.plan.nodes import Filter, Node, OutputMode, Project, Sink, Source, Union
from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    Schema,
    decimal,
)
from headrace.plan.windows import Hopping
from tests.support.plans import BIDS, plans

ZONES = [None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))]
ZONES += [ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")]


def all_literals() -> st.SearchStrategy[Literal]:
    return st.one_of(
        st.just(Literal(None, NULL)),
        st.booleans().map(lambda v: Literal(v, BOOLEAN)),
        st.integers(-(2**63), 2**63 - 1).map(lambda v: Literal(v, BIGINT)),
        st.floats(allow_nan=False).map(lambda v: Literal(v, DOUBLE)),
        st.just(Literal(math.nan, DOUBLE)),
        st.text().map(lambda v: Literal(v, STRING)),
        st.binary().map(lambda v: Literal(v, BINARY)),
        st.decimals(allow_nan=False, allow_infinity=False, places=3).map(
            lambda v: Literal(v, decimal(38, 3))
        ),
        st.dates().map(lambda v: Literal(v, DATE)),
        st.datetimes(timezones=st.sampled_from(ZONES)).map(lambda v: Literal(v, TIMESTAMP)),
        st.just(Literal("5 minutes", INTERVAL)),
    )


def dumped(node: Node) -> str:
    return json.dumps(to_json(node), sort_keys=True)


def exact(value: object) -> tuple[object, ...]:
    """What must survive beyond equality: 1 == True, 0.0 == -0.0, zones compare as instants."""
    zone = getattr(value, "tzinfo", None)
    offset = value.utcoffset() if isinstance(value, datetime.datetime) else None
    fold = getattr(value, "fold", None)
    return type(value), repr(value) if zone is None else str(value), offset, fold


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(plans(), st.lists(all_literals(), max_size=4), st.booleans())
def test_round_trip(plan: Node, literals: list[Literal], sink: bool) -> None:
    kept = [Named(f.name, Column(f.name, f.type)) for f in plan.schema]
    extra = [Named(f"literal {i}", literal) for i, literal in enumerate(literals)]
    node: Node = Project(plan, (*kept, *extra))
    if sink:
        node = Sink(node, "out", "parquet", OutputMode.UPDATE, (("path", "/a b"),))
    back = from_json(json.loads(json.dumps(to_json(node))))
    assert back == node
    assert dumped(back) == dumped(node)
    assert plan_hash(back) == plan_hash(node)
    top = back.inputs[0] if sink else back
    assert isinstance(top, Project)
    for before, after in zip(extra, top.columns[len(kept) :], strict=True):
        assert isinstance(after.expr, Literal)
        assert exact(after.expr.value) == exact(before.expr.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "literal",
    [
        Literal(-0.0, DOUBLE),
        Literal(math.inf, DOUBLE),
        Literal(-math.inf, DOUBLE),
        Literal(5e-324, DOUBLE),
        Literal(Decimal("1E+3"), decimal(10, 0)),
        Literal(Decimal("-0.00"), decimal(10, 2)),
        Literal(
            datetime.datetime(2021, 10, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
            TIMESTAMP,
        ),
        Literal(datetime.datetime(2021, 1, 1, 0, 0, 0, 1), TIMESTAMP),
        Literal(b"\x00\xff", BINARY),
        Literal("\ud800 lone surrogate", STRING),
    ],
    ids=str,
)
def test_awkward_literals(literal: Literal) -> None:
    node = Project(BIDS, (Named("x", literal),))
    back = from_json(json.loads(json.dumps(to_json(node))))
    assert isinstance(back, Project)
    read = back.columns[0].expr
    assert isinstance(read, Literal)
    assert exact(read.value) == exact(literal.value)


def test_literals_that_are_equal_but_not_the_same_are_kept_apart() -> None:
    parts = tuple(Project(BIDS, (Named("x", Literal(v, DOUBLE)),)) for v in (0.0, -0.0))
    back = from_json(to_json(Union(parts)))
    signs = [math.copysign(1, p.columns[0].expr.value) for p in back.inputs]  # type: ignore[attr-defined]
    assert signs == [1, -1]


def test_a_shared_subplan_is_stored_once_and_read_as_one_object() -> None:
    condition: Expr = Call(">", (Column("price", INT), Literal(5, INT)), BOOLEAN)
    twice = Union((Filter(BIDS, condition), Filter(BIDS, condition)))
    data = to_json(twice)
    assert [n["op"] for n in data["nodes"]] == ["source", "filter", "union"]
    left, right = from_json(data).inputs
    assert left is right


def test_deep_sharing_takes_linear_time() -> None:
    node: Node = BIDS
    for _ in range(40):
        node = Union((node, node))
    assert len(to_json(node)["nodes"]) == 41


def test_fields_at_their_default_are_left_out() -> None:
    source = Source("s", Schema.of([("ts", TIMESTAMP)]), "ts")
    assert set(to_json(source)["nodes"][0]) == {"op", "stream", "columns", "time"}
    # False is 0 for Python; a delay of 0 must not be taken for another field's default.
    cast = Project(source, (Named("x", Cast(Literal(0, INT), BIGINT, safe=True)),))
    assert to_json(cast)["nodes"][1]["columns"][0]["expr"]["safe"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a plan"),
        ({"version": VERSION + 1}, "version"),
        ({"root": 99}, "damaged"),
        ({"nodes": [{"op": "teapot"}]}, "teapot"),
        ({"nodes": [{"op": "source"}]}, "damaged"),
        ({"nodes": None}, "damaged"),
    ],
)
def test_json_that_is_no_plan_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        from_json(to_json(BIDS) | change)


def test_hash_is_the_same_in_another_process_and_differs_between_plans() -> None:
    code = (
        "from tests.support.plans import BIDS; from headrace.plan.json import plan_hash\n"
        "print(plan_hash(BIDS))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.strip() == plan_hash(BIDS)
    assert plan_hash(BIDS) != plan_hash(Source("bids", BIDS.columns, "ts", delay=1))
    assert Hopping(10, 10) == Hopping(10, 10, 10)
