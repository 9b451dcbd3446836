"""Join orders as users meet them: explain, alternatives, hints, forced orders, changes of order."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.errors import HeadraceError, QueryError
from headrace.optimizer import optimize
from headrace.plan.join_graph import topmost_joins
from headrace.plan.nodes import OutputMode
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query
from tests.engine.results.test_join_orders import BEGIN, CATALOG
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, tiny_executor
from tests.support.oracle import run_epochs
from tests.support.streams import Epochs

THREE = (
    "SELECT {hint} a.k, b.v AS bv, c.v AS cv FROM a "
    "JOIN b ON a.k = b.k AND window(a.ts, '30 minutes') = window(b.ts, '30 minutes') "
    "JOIN c ON a.k = c.k AND window(a.ts, '5 minutes', '30 minutes') = "
    "window(c.ts, '5 minutes', '30 minutes')"
)
SESSIONS = (
    "SELECT a.k FROM a JOIN b ON a.k = b.k "
    "AND session_window(a.ts, '5 minutes') = session_window(b.ts, '5 minutes') "
    "JOIN c ON a.k = c.k AND session_window(a.ts, '5 minutes') = session_window(c.ts, '5 minutes')"
)


@pytest.fixture(scope="module")
def hr(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Headrace:
    folder = tmp_path_factory.mktemp("surface")
    hr = Headrace(spark, checkpoint=str(folder / "state"))
    for name in "abc":
        (folder / name).mkdir()
        frame = spark.readStream.schema("k BIGINT, v BIGINT, ts TIMESTAMP").parquet(
            str(folder / name)
        )
        hr.stream(name, frame, time="ts")
    return hr


def sql(hint: str = "") -> str:
    return THREE.format(hint=hint)


def test_explain_shows_the_order_the_others_and_their_rules(hr: Headrace) -> None:
    text = hr.sql(sql()).explanation()
    assert "a, b, c: fully associative" in text
    assert "order (a ⋈ c) ⋈ b, by its windows alone" in text
    assert "hands on a.ts" in text
    assert "(b ⋈ c) ⋈ a  (largest_window_first" in text
    described = json.loads(hr.sql(sql()).explanation("json"))["joins"]
    assert described[0]["order"] == "(a ⋈ c) ⋈ b"
    assert len(described[0]["orders"]) == 6


def test_explain_says_why_sessions_stay(hr: Headrace) -> None:
    text = hr.sql(SESSIONS).explanation()
    assert "a session join stays where it is" in text
    assert "Case A5" in text
    with pytest.raises(QueryError, match="sessions depend on the rows"):
        hr.sql(SESSIONS).in_order("b", "c", "a")


def test_explain_says_why_ends_of_windows_stay(hr: Headrace) -> None:
    window = "window({0}.ts, '10 minutes'{1})"
    for slide, words in ((", '5 minutes'", "do not associate"), ("", "hands on its end")):
        one, other = (window.format(side, slide) for side in "ab")
        query = hr.sql(
            f"SELECT p.k FROM (SELECT a.k, window_time(window) AS t FROM a JOIN b ON a.k = b.k "
            f"AND {one} = {other}) p JOIN c ON p.k = c.k "
            "AND window(p.t, '10 minutes') = window(c.ts, '10 minutes')"
        )
        assert words in query.explanation()


def test_orders_can_be_forced(hr: Headrace) -> None:
    query = hr.sql(sql())
    forced = query.in_order("b", "c", "a")
    assert "in the order (b ⋈ c) ⋈ a" in str(forced.optimized.plan)
    assert "order (b ⋈ c) ⋈ a" in forced.explanation()
    hinted = hr.sql(sql("/*+ JOIN_ORDER(b, c, a) */"))
    assert hinted.optimized.plan == forced.optimized.plan
    names = {entry.info.name: entry for entry in query.alternatives()}
    assert {f"join order {order}" for order in ("(a ⋈ b) ⋈ c", "(c ⋈ b) ⋈ a")} <= names.keys()
    used = query.using(names["join order (b ⋈ c) ⋈ a"])
    assert used.optimized.plan == forced.optimized.plan
    join = next(topmost_joins(used.optimized.plan))
    assert join.order == ((1, 2), 0)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (("a", "b"), "names each of a, b, c once"),
        (("a", "b", "x"), "'x' is none of a, b, c"),
        (("a", "b", "c", "c"), "names each of a, b, c once"),
        (("a", 3, "c"), "3 is no order"),
    ],
)
def test_senseless_orders_are_refused(hr: Headrace, order: tuple[object, ...], words: str) -> None:
    with pytest.raises(QueryError, match=words):
        hr.sql(sql()).in_order(*order)
    with pytest.raises(QueryError, match="joins no streams"):
        hr.sql("SELECT k FROM a").in_order("a")


@pytest.mark.parametrize(
    ("text", "condition", "hint"),
    [
        # No usable predicate.
        ("SELECT a.k FROM a JOIN b ON a.v < b.v", "JOIN_WITHOUT_KEY", "ts"),
        # A window on what is no event time.
        (
            "SELECT a.k FROM a JOIN b ON a.k = b.k AND window(a.ts, '5 minutes') = "
            "window(timestamp_millis(b.v), '5 minutes')",
            None,
            "",
        ),
        # Windows that differ on the two sides.
        (
            "SELECT a.k FROM a JOIN b ON a.k = b.k AND window(a.ts, '5 minutes') = "
            "window(b.ts, '10 minutes')",
            "WINDOW_MISMATCH",
            "",
        ),
        # A column that both sides have.
        (
            "SELECT k FROM a JOIN b ON a.k = b.k AND window(a.ts, '5 minutes') = "
            "window(b.ts, '5 minutes')",
            "AMBIGUOUS_COLUMN",
            "a.k",
        ),
    ],
)
def test_bad_joins_are_refused_with_a_hint(
    hr: Headrace, text: str, condition: str | None, hint: str
) -> None:
    with pytest.raises(HeadraceError) as caught:
        hr.sql(text)
    if condition is not None:
        assert caught.value.condition == condition
    assert caught.value.hint
    assert hint in str(caught.value)


def test_state_without_end_is_told(hr: Headrace) -> None:
    advice = hr.sql("SELECT a.v FROM a JOIN b ON a.k = b.k").explanation("extended")
    assert "ttl" in advice.split("== Advice ==")[1]


def rows(count: int, hour: int, value: int = 1) -> list[dict[str, object]]:
    """Evenly over an hour, of four keys."""
    return [
        {
            "k": i % 4,
            "v": value,
            "ts": BEGIN + datetime.timedelta(seconds=3600 * (hour + i / count)),
        }
        for i in range(count)
    ]


EQUAL_WINDOWS = (
    "SELECT a.k, count(*) AS n FROM a "
    "JOIN b ON a.k = b.k AND window(a.ts, '30 minutes') = window(b.ts, '30 minutes') "
    "JOIN c ON a.k = c.k AND window(a.ts, '30 minutes') = window(c.ts, '30 minutes') "
    "GROUP BY a.k, window(a.ts, '1 hour')"
)


def changes_of_order(spark: SparkSession, folder: Path, least_gain: float) -> list[str]:
    """Much of c and little of b, then the other way round, against the oracle."""
    plan = plan_query(EQUAL_WINDOWS, CATALOG).plan
    amounts = [(40, 4, 400), (40, 4, 400), (40, 400, 4), (40, 400, 4)]
    epochs: Epochs = [
        {stream: rows(n, hour) for stream, n in zip("abc", counts, strict=True)}
        for hour, counts in enumerate(amounts)
    ]
    run = run_engine(
        tiny_executor(spark),
        {"q": (optimize(plan, frozenset({"early_aggregation"})).plan, OutputMode.APPEND)},
        CATALOG,
        epochs,
        {"items": []},
        folder,
        as_given=frozenset({"q"}),
        plans=(PlannerPolicy(join_passes="whole", least_gain=least_gain),),
    )
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)
    return [c for report in run.reports[1:] for c in report.changes if "join order" in c]


def test_the_order_follows_the_rates(spark: SparkSession, tmp_path: Path) -> None:
    (change,) = changes_of_order(spark, tmp_path, least_gain=0.1)
    assert "(was" in change
    assert "as written" not in change


def test_an_order_is_kept_while_another_saves_little(spark: SparkSession, tmp_path: Path) -> None:
    """The same streams, where nothing less than all of the cost would be enough."""
    assert changes_of_order(spark, tmp_path, least_gain=1.0) == []


def test_rows_without_partner_wait_for_the_first_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of one stream expire in the epoch in which the other one first has rows at all."""
    sql = (
        "SELECT a.k, b.k AS other FROM a LEFT JOIN b ON a.k = b.k "
        "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE"
    )
    plan = plan_query(sql, CATALOG).plan
    epochs: Epochs = [{"a": rows(4, 0), "b": []}, {"a": rows(1, 5), "b": rows(1, 5)}]
    run = run_engine(
        tiny_executor(spark),
        {"q": (plan, OutputMode.APPEND)},
        CATALOG,
        epochs,
        {"items": []},
        tmp_path,
    )
    assert len(run.rows["q"][1]) >= 4
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)
