"""How expressions and plans read."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from sqlglot import exp

from headrace.plan.durations import SECOND
from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Literal
from headrace.plan.nodes import IntervalBound as WithinTime
from headrace.plan.nodes import JoinKind, JoinTime, OutputMode, SameSession, SameWindow, Sink, Union
from headrace.plan.text import (
    expression_text,
    join_time_text,
    plan_text,
    plans_text,
    shared_nodes,
    window_text,
)
from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    WINDOW,
    decimal,
)
from headrace.plan.windows import Hopping, InheritedWindow, Landmark, Session, Trailing, Window
from tests.support.build import call, cast, col, count, group, join, lit, select, where
from tests.support.plans import BIDS, CLICKS, expressions, predicates

A, B, S, P = Column("a", INT), Column("b", INT), Column("s", STRING), Column("p", BOOLEAN)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (call("*", call("+", A, B, kind=INT), 2, kind=INT), "(a + b) * 2"),
        (call("-", A, call("-", B, 1, kind=INT), kind=INT), "a - (b - 1)"),
        (call("-", call("-", A, B, kind=INT), 1, kind=INT), "a - b - 1"),
        (call("and", call("or", P, P), P), "(p OR p) AND p"),
        (call("or", call("and", P, P), P), "p AND p OR p"),
        (call("not", call("and", P, P)), "NOT (p AND p)"),
        (call("not", call("=", A, B)), "NOT (a = b)"),
        (call("not", P), "NOT p"),
        (call("not", call("isnull", A)), "a IS NOT NULL"),
        (call("isnull", call("=", A, B)), "(a = b) IS NULL"),
        (call("=", call("=", A, B), P), "(a = b) = p"),
        (call("in", A, 1, 2), "a IN (1, 2)"),
        (call("not", call("in", A, 1)), "a NOT IN (1)"),
        (call("not", call("like", S, "a%")), "s NOT LIKE 'a%'"),
        (call("!=", A, B), "a <> b"),
        (call("<=>", A, B), "a <=> b"),
        (call("negative", call("negative", A, kind=INT), kind=INT), "-(-a)"),
        (call("negative", lit(-1), kind=INT), "-(-1)"),
        (call("*", lit(-1), A, kind=INT), "-1 * a"),
        (call("~", A, kind=INT), "~a"),
        (call("div", A, 2, kind=BIGINT), "a DIV 2"),
        (call("|", A, call("&", A, B, kind=INT), kind=INT), "a | a & b"),
        (call("&", A, call("|", A, B, kind=INT), kind=INT), "a & (a | b)"),
        (call("case", P, 1, 2, kind=INT), "CASE WHEN p THEN 1 ELSE 2 END"),
        (Call("case", (P, A, Literal(None, INT)), INT), "CASE WHEN p THEN a END"),
        (call("upper", S, kind=STRING), "upper(s)"),
        (call("field", Column("window", WINDOW), "start", kind=TIMESTAMP), "window.start"),
        (call("item", Column("xs", INT), 0, kind=INT), "xs[0]"),
        (cast(A, BIGINT), "CAST(a AS bigint)"),
        (cast(A, BIGINT, safe=True), "TRY_CAST(a AS bigint)"),
        (count(), "count(*)"),
        (count(P), "count(*) FILTER (WHERE p)"),
        (AggregateCall("count", (A,), BIGINT, distinct=True), "count(DISTINCT a)"),
        (Column("a.ts", TIMESTAMP), "a.ts"),
        (Column("two words", INT), "`two words`"),
        (Column("tick`", INT), "`tick```"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert expression_text(expr) == text
    assert str(expr) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, INT, "NULL"),
        (True, BOOLEAN, "TRUE"),
        (5, INT, "5"),
        (5, BIGINT, "5L"),
        (5, SMALLINT, "5S"),
        (5, TINYINT, "5Y"),
        (1.5, DOUBLE, "1.5D"),
        (1.5, FLOAT, "1.5F"),
        (math.nan, DOUBLE, "double('NaN')"),
        (-math.inf, DOUBLE, "double('-Infinity')"),
        (Decimal("1.50"), decimal(3, 2), "1.50"),
        (Decimal("7"), decimal(3, 0), "7BD"),
        ("it's \\", STRING, "'it\\'s \\\\'"),
        (b"\x0a\xff", BINARY, "X'0AFF'"),
        (datetime.date(2024, 2, 29), DATE, "DATE '2024-02-29'"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5), TIMESTAMP, "TIMESTAMP '2024-01-02 03:04:05'"),
        ("5 minutes", INTERVAL, "INTERVAL '5 minutes'"),
    ],
)
def test_literals(value: object, kind: object, text: str) -> None:
    assert expression_text(Literal(value, kind)) == text  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(predicates(BIDS.schema, 3) | expressions(BIDS.schema, BIGINT, 3))
def test_the_text_of_an_expression_reads_back_with_the_same_structure(expr: Expr) -> None:
    """Brackets are neither missing nor in the wrong place: sqlglot sees the same tree."""
    parsed = sqlglot.parse_one(f"SELECT {expr} AS x", dialect="spark").selects[0]
    assert _shape(parsed.unalias()) == _plan_shape(expr)


_SHAPES = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "and": exp.And,
    "or": exp.Or,
    "=": exp.EQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "<=>": exp.NullSafeEQ,
    "like": exp.Like,
}


def _shape(node: exp.Expression) -> object:
    """Operators that can go wrong by precedence, with their operands; all else is a leaf."""
    if isinstance(node, exp.Paren):
        return _shape(node.this)
    if isinstance(node, exp.Not):
        return ("not", _shape(node.this))
    for name, kind in _SHAPES.items():
        if type(node) is kind:
            shape = _flat(name, (_shape(node.this), _shape(node.expression)))
            # NOT LIKE is a LIKE with a mark.
            return ("not", shape) if node.args.get("negate") else shape
    if isinstance(node, exp.Is):
        return ("isnull", _shape(node.this))
    return "leaf"


def _plan_shape(expr: Expr) -> object:
    if isinstance(expr, Call):
        if expr.function in _SHAPES:
            return _flat(expr.function, tuple(_plan_shape(a) for a in expr.arguments))
        if expr.function in ("not", "isnull"):
            return (expr.function, _plan_shape(expr.arguments[0]))
    return "leaf"


def _flat(name: str, parts: tuple[object, ...]) -> object:
    """AND and OR are associative: their grouping does not show."""
    if name not in ("and", "or"):
        return (name, *parts)
    flat: list[object] = []
    for part in parts:
        flat += part[1:] if isinstance(part, tuple) and part[0] == name else [part]
    return (name, *flat)


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (Hopping(1200_000, 1200_000), "window(ts, '20 minutes')"),
        (Hopping(1200_000, 600_000), "window(ts, '20 minutes', '10 minutes')"),
        (
            Hopping(1200_000, 1200_000, 60_000),
            "window(ts, '20 minutes', '20 minutes', '1 minute')",
        ),
        (Session(5_000), "session_window(ts, '5 seconds')"),
        (Trailing(5_000), "trailing(ts, '5 seconds')"),
        (Landmark(), "landmark(ts)"),
        (InheritedWindow(), "ts"),
    ],
)
def test_windows(window: Window, text: str) -> None:
    assert window_text(window, "ts") == text


X, Y = Column("a.ts", TIMESTAMP), Column("b.at", TIMESTAMP)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (SameWindow(X, Y, Hopping(10, 10)), None),
        (SameSession(X, Y, 5_000), None),
        (
            WithinTime(X, Y, -5 * SECOND, 10 * SECOND),
            "b.at BETWEEN a.ts - INTERVAL '5 seconds' AND a.ts + INTERVAL '10 seconds'",
        ),
        (WithinTime(X, Y, 0, 10 * SECOND), "b.at BETWEEN a.ts AND a.ts + INTERVAL '10 seconds'"),
        (WithinTime(X, Y, None, 0), "b.at <= a.ts"),
        (WithinTime(X, Y, 1 * SECOND, None), "b.at >= a.ts + INTERVAL '1 second'"),
    ],
)
def test_join_times(time: JoinTime, text: str | None) -> None:
    if text is None:
        left, right = join_time_text(time).split(" = ")
        assert left.replace("a.ts", "b.at") == right
    else:
        assert join_time_text(time) == text


def test_a_plan() -> None:
    cheap = where(BIDS, call("<", col(BIDS, "price"), 5))
    pairs = join(
        cheap,
        CLICKS,
        ("auction", "auction"),
        SameWindow(X, Y, Hopping(10 * SECOND, 5 * SECOND)),
        JoinKind.LEFT,
    )
    sink = Sink(select(pairs, ("k", col(pairs, "a.auction"))), "q", "memory", OutputMode.APPEND)
    assert plan_text(sink) == (
        "Sink q to memory, append\n"
        "  Project [a.auction AS k]\n"
        "    Join left a, b on a.auction = b.auction, within"
        " window(a.ts, '10 seconds', '5 seconds') = window(b.at, '10 seconds', '5 seconds')\n"
        "      Filter price < 5\n"
        "        Source bids [auction, bidder, price, fee, channel, ts] time ts,"
        " delay 10 seconds\n"
        "      Source clicks [auction, page, score, fresh, at] time at, delay 5 seconds"
    )
    assert str(sink) == plan_text(sink)


def test_what_several_queries_share_is_named_once() -> None:
    cheap = where(BIDS, call("<", col(BIDS, "price"), 5))
    narrow = select(cheap, "auction", "ts")
    counts = group(narrow, ("auction",), "ts", Hopping(60_000, 60_000), n=count())
    source = "Source bids [auction, bidder, price, fee, channel, ts] time ts, delay 10 seconds"
    assert plans_text([counts, Union((narrow, narrow)), cheap], ["one", "two", "three"]) == (
        "r0 := Filter price < 5\n"
        f"        {source}\n"
        "\n"
        "r1 := Project [auction, ts]\n"
        "        r0\n"
        "\n"
        "one: Aggregate [count(*) AS n] by auction, over window(ts, '1 minute')\n"
        "       r1\n"
        "\n"
        "two: Union\n"
        "       r1\n"
        "       r1\n"
        "\n"
        "three: r0"
    )


def test_leaves_and_what_is_used_once_are_not_named() -> None:
    assert shared_nodes([Union((BIDS, BIDS))]) == []
    cheap = where(BIDS, call("<", col(BIDS, "price"), 5))
    # Used twice, but only inside something that is itself used twice and named.
    assert shared_nodes([Union((select(cheap, "ts"), select(cheap, "ts")))]) == [
        select(cheap, "ts")
    ]


def test_a_name_that_says_nothing_new_is_left_out() -> None:
    counts = group(BIDS, (), "ts", Hopping(60_000, 60_000), **{"count(*)": count()})
    assert plan_text(counts).startswith("Aggregate [count(*)] over")
    renamed = select(counts, ("n 1", col(counts, "count(*)")), "window")
    assert plan_text(renamed).startswith("Project [`count(*)` AS `n 1`, window]\n")
