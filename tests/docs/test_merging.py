"""docs/merging.md shows what ``headrace merge`` prints, and pairs that are merged or are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cli import main
from headrace.merge import GlobalPlan, MergeStrategy
from headrace.merge.strategies import make_matcher
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Sink, Source
from headrace.plan.types import DOUBLE, INT, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.docs.examples import document
from tests.docs.generated import check_parts
from tests.support.script import (
    AddData,
    Advance,
    Check,
    Run,
    Stage,
    StartQuery,
    Stream,
    play,
)

MERGING = document("merging.md")
CATALOG: dict[str, Source] = {
    "bids": Source(
        "bids",
        Schema.of(
            [
                *(("auction", INT), ("bidder", INT), ("price", INT)),
                *(("channel", STRING), ("rate", DOUBLE), ("ts", TIMESTAMP)),
            ]
        ),
        "ts",
        10_000,
    ),
    "clicks": Source("clicks", Schema.of([("auction", INT), ("at", TIMESTAMP)]), "at"),
}

DEAR = "SELECT auction FROM bids WHERE price > 5"
JOIN = "ON b.auction = c.auction AND window(b.ts, '1 minute') = window(c.at, '1 minute')"
MIRRORED = "ON c.auction = b.auction AND window(c.at, '1 minute') = window(b.ts, '1 minute')"
EQUAL = [
    (
        "SELECT auction, price FROM bids WHERE price BETWEEN 6 AND 9",
        "SELECT price AS p, auction AS a FROM bids WHERE NOT (price <= 5 OR 10 <= price)",
    ),
    (
        "SELECT auction FROM bids WHERE price >= bidder",
        "SELECT auction FROM bids WHERE CAST(price AS BIGINT) - bidder > -1",
    ),
    (
        "SELECT auction FROM bids WHERE price > 5 AND (bidder > 3 OR channel = 'a')",
        "SELECT auction FROM bids "
        "WHERE (channel = 'a' AND price > 5) OR (bidder > 3 AND price > 5)",
    ),
    (
        "SELECT auction FROM bids WHERE channel IN ('a', 'b')",
        "SELECT auction FROM bids WHERE channel = 'b' OR channel = 'a'",
    ),
    (
        "SELECT auction, window, SUM(price) AS s FROM bids WHERE price > 5 "
        "GROUP BY auction, window(ts, '10 minutes')",
        "SELECT SUM(p) AS t, window, auction FROM (SELECT price AS p, auction, ts FROM bids) "
        "WHERE p >= 6 GROUP BY window(ts, '600 seconds'), auction",
    ),
    (
        f"SELECT b.price FROM bids b JOIN clicks c {JOIN}",
        f"SELECT b.price FROM clicks c JOIN bids b {MIRRORED}",
    ),
    (
        f"SELECT b.price, c.at FROM bids b LEFT JOIN clicks c {JOIN}",
        "SELECT y.price AS p, x.at FROM clicks x RIGHT JOIN bids y "
        "ON x.auction = y.auction AND window(x.at, '1 minute') = window(y.ts, '1 minute')",
    ),
    (
        f"{DEAR} UNION ALL SELECT auction FROM bids",
        f"SELECT auction FROM bids UNION ALL {DEAR}",
    ),
]
UNEQUAL = [
    (
        "SELECT auction, price FROM bids",
        "SELECT auction, price FROM bids WHERE price > 5 OR price <= 5",
        "rows whose price is NULL",
    ),
    (DEAR, "SELECT auction FROM bids WHERE price + 1 > 6", "`price + 1` may overflow"),
    (DEAR, "SELECT auction FROM bids WHERE price / 5 > 1", "division has no exact form"),
    (
        "SELECT rate + 1 + 2 AS x FROM bids",
        "SELECT rate + 3 AS x FROM bids",
        "floating point rounds twice",
    ),
    (
        "SELECT auction FROM bids WHERE upper(channel) = 'A'",
        "SELECT auction FROM bids WHERE channel IN ('a', 'A')",
        "functions are not looked into",
    ),
    (
        "SELECT auction FROM bids WHERE auction > 5 UNION ALL SELECT auction FROM clicks",
        "SELECT auction FROM bids UNION ALL SELECT auction FROM clicks WHERE auction > 5",
        "the filters are on different branches",
    ),
    (
        "SELECT COUNT(*) AS n, window FROM bids GROUP BY window(ts, '10 minutes')",
        "SELECT COUNT(*) AS n, window FROM bids GROUP BY window(ts, '10 minutes', '5 minutes')",
        "other windows",
    ),
]


def is_one_query(one: str, other: str, strategy: MergeStrategy, unbounded: bool = False) -> bool:
    matcher = make_matcher(strategy, unbounded, 1_000, named=False)
    merged = GlobalPlan(strategy, matcher=matcher)
    for name, sql in (("one", one), ("other", other)):
        plan = optimize(plan_query(sql, CATALOG).plan).plan
        placed = merged.add(Sink(plan, name, "noop", OutputMode.APPEND))
    return placed.complete


@pytest.mark.parametrize("strategy", [MergeStrategy.SM, MergeStrategy.SM_PLUS, MergeStrategy.SM_BU])
def test_pairs(strategy: MergeStrategy) -> None:
    for one, other in EQUAL:
        # From the sources up only what is built of the same operators is found.
        assert is_one_query(one, other, strategy) or strategy is MergeStrategy.SM_BU, other
    for one, other, why in UNEQUAL:
        assert not is_one_query(one, other, strategy), other
        if "overflow" in why:
            assert is_one_query(one, other, strategy, unbounded=True)


def test_the_pairs_are_shown(update_golden: bool) -> None:
    equal = ["| one | other |", "|---|---|"]
    equal += [f"| `{one}` | `{other}` |" for one, other in EQUAL]
    unequal = ["| one | other | why not |", "|---|---|---|"]
    unequal += [f"| `{one}` | `{other}` | {why} |" for one, other, why in UNEQUAL]
    made = {"equal": "\n".join(equal) + "\n", "unequal": "\n".join(unequal) + "\n"}
    check_parts(MERGING, made, update_golden)


def test_the_command_prints_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], update_golden: bool
) -> None:
    yaml = re.search(r"```yaml\n(.*?)```", MERGING.read_text(encoding="utf-8"), re.DOTALL)
    assert yaml
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml[1])
    with pytest.raises(SystemExit):
        main(["merge", str(file)])
    # How long it took is another figure each time.
    shown = re.sub(
        r"planned in .*, merged in .*", "planned in 41 ms, merged in 2 ms", capsys.readouterr().out
    )
    check_parts(MERGING, {"merge": f"```text\n{shown}```\n"}, update_golden)


def test_a_engine_explains_its_queries_before_and_while_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As the section on seeing it says, with a late joiner that is computed apart at first."""
    counts = (
        "SELECT k, window, COUNT(*) AS n FROM s WHERE v > 1 GROUP BY k, window(ts, '10 seconds')"
    )
    same = counts.replace("v > 1", "NOT v <= 1").replace("AS n", "AS how_many")

    def told(stage: Stage, *lines: str) -> bool:
        text = stage.hr.explanation()
        return all(line in text.splitlines() for line in lines)

    late = "apart until they have caught up: late"
    play(
        spark,
        tmp_path,
        [Stream("s", "k string, v bigint, ts timestamp")],
        StartQuery("one", counts),
        StartQuery("two", same),
        Check("planned", lambda stage: told(stage, "equal: one, two", "one, two: r0")),
        Run(),
        AddData("s", ("a", 2, 1), ("a", 3, 12)),
        Advance(),
        Check("as it runs", lambda stage: told(stage, "equal: one, two")),
        Check("none is late", lambda stage: not told(stage, late)),
        StartQuery("late", counts),
        AddData("s", ("a", 2, 13)),
        Advance(),
        Check("apart", lambda stage: told(stage, "equal: one, two, late", late)),
        AddData("s", ("a", 2, 60)),
        Advance(),
        AddData("s", ("a", 2, 61)),
        Advance(),
        Check("together", lambda stage: not told(stage, late)),
        Check("for programs", lambda stage: '"queries": 3' in stage.hr.explanation("json")),
        Check("for Graphviz", lambda stage: "digraph" in stage.hr.explanation("dot")),
    )
