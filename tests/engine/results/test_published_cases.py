"""The cases of the paper on window join reordering, each order run as a query of its own.

Windows are in minutes, ``I(lo, hi)`` with signed bounds. An order ``ABC_b`` hands on b.ts from the
first join. A hash is that of the sorted distinct results, ((stream, key, value, minute), …) each.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from headrace import Headrace, Query
from tests.support.stage import PATIENT

MINUTE = 60_000_000


@dataclass(frozen=True)
class Run:
    """What an order gives; ``windows`` where they differ from the case's."""

    rows: int
    sha12: str
    windows: str | None = None


@dataclass(frozen=True)
class Case:
    name: str
    windows: str
    runs: dict[str, Run]
    equal: list[tuple[str, str]] = field(default_factory=list)

    @property
    def streams(self) -> str:
        """Which streams it reads: those that most cases share, or its own."""
        return {"CaseC2": "c2", "CaseA5": "a5"}.get(self.name, "")


# fmt: off
CASES = [
    Case("CaseC1_s_lt_l", "SW(10,5)", {
        "AB": Run(292, "a50d1501221a"),
        "BA": Run(292, "a50d1501221a"),
    }, equal=[('AB', 'BA')]),
    Case("CaseC1_s_gt_l", "SW(5,10)", {
        "AB": Run(46, "8dd4a23bf3eb"),
        "BA": Run(46, "8dd4a23bf3eb"),
    }, equal=[('AB', 'BA')]),
    Case("CaseC1_s_eq_l", "SW(10,10)", {
        "AB": Run(195, "a7b94bf6e1c5"),
        "BA": Run(195, "a7b94bf6e1c5"),
    }, equal=[('AB', 'BA')]),
    Case("CaseC2", "Sess(gap 4)", {
        "AB": Run(240, "db04ead19334"),
        "BA": Run(240, "db04ead19334"),
    }, equal=[('AB', 'BA')]),
    Case("CaseC3", "I(-10,10)", {
        "AB": Run(379, "ad1ea9ab9f96"),
        "BA": Run(379, "ad1ea9ab9f96"),
    }, equal=[('AB', 'BA')]),
    Case("CaseC4_lB_lt_uB", "I(-10,0)", {
        "AB": Run(185, "0149224273fd"),
        "BA": Run(194, "88b4487f015f"),
    }, equal=[]),
    Case("CaseC4_lB_gt_uB", "I(0,10)", {
        "AB": Run(194, "88b4487f015f"),
        "BA": Run(185, "0149224273fd"),
    }, equal=[]),
    Case("CaseC4_lB_lt_uB_withBoundarySwap", "I(-10,0)", {
        "AB": Run(185, "0149224273fd"),
        "BA": Run(185, "0149224273fd", "I(0,10)"),
    }, equal=[('AB', 'BA')]),
    Case("CaseC4_lB_gt_uB_withBoundarySwap", "I(0,10)", {
        "AB": Run(194, "88b4487f015f"),
        "BA": Run(194, "88b4487f015f", "I(-10,0)"),
    }, equal=[('AB', 'BA')]),
    Case("CaseA1", "W1=SW(10,5) W2=SW(10,5)", {
        "ABC_a": Run(2084, "0f52dc6458c3"),
        "BCA_a": Run(2148, "208e92512564"),
        "ABC_b": Run(2148, "208e92512564"),
        "BCA_b": Run(2148, "208e92512564"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA1_outer_edge_case", "W1=SW(10,9) W2=SW(10,9)", {
        "ABC_a": Run(1211, "9ab4ae731f65"),
        "BCA_a": Run(1245, "2a8c4307bef6"),
        "ABC_b": Run(1245, "2a8c4307bef6"),
        "BCA_b": Run(1245, "2a8c4307bef6"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA1_outer_edge_case_2", "W1=SW(20,15) W2=SW(20,15)", {
        "ABC_a": Run(5999, "349588975289"),
        "BCA_a": Run(6018, "b733edfb1f7e"),
        "ABC_b": Run(6018, "b733edfb1f7e"),
        "BCA_b": Run(6018, "b733edfb1f7e"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA2", "W1=SW(10,15) W2=SW(10,15)", {
        "ABC_a": Run(636, "c8613aa3bcc2"),
        "BCA_a": Run(636, "c8613aa3bcc2"),
        "ABC_b": Run(636, "c8613aa3bcc2"),
        "BCA_b": Run(636, "c8613aa3bcc2"),
    }, equal=[('ABC_a', 'BCA_a'), ('ABC_b', 'BCA_b')]),
    Case("CaseA2_TWJ", "W1=SW(10,10) W2=SW(10,10)", {
        "ABC_a": Run(975, "5d53d7aba7c0"),
        "BCA_a": Run(975, "5d53d7aba7c0"),
        "ABC_b": Run(975, "5d53d7aba7c0"),
        "BCA_b": Run(975, "5d53d7aba7c0"),
    }, equal=[('ABC_a', 'BCA_a'), ('ABC_b', 'BCA_b')]),
    Case("CaseA2_slide_no_divisor", "W1=SW(10,13) W2=SW(10,13)", {
        "ABC_a": Run(728, "471cccf3a45e"),
        "BCA_a": Run(728, "471cccf3a45e"),
        "ABC_b": Run(728, "471cccf3a45e"),
        "BCA_b": Run(728, "471cccf3a45e"),
    }, equal=[('ABC_a', 'BCA_a'), ('ABC_b', 'BCA_b')]),
    Case("CaseA3_w1_gt_w2", "W1=SW(30,15) W2=SW(15,5)", {
        "ABC_a": Run(9321, "97d3110db711"),
        "BCA_a": Run(9092, "e8ca50d8cd42"),
        "ABC_b": Run(9092, "e8ca50d8cd42"),
        "BCA_b": Run(9092, "e8ca50d8cd42"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA3_w1_lt_w2", "W1=SW(10,5) W2=SW(15,5)", {
        "ABC_a": Run(3454, "c1f53a1f573c"),
        "BCA_a": Run(3380, "02d1deb36c30"),
        "ABC_b": Run(3380, "02d1deb36c30"),
        "BCA_b": Run(3380, "02d1deb36c30"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("Case_MixedWindow_w1_non_overlapping_w2_overlapping", "W1=SW(20,30) W2=SW(15,5)", {
        "ABC_a": Run(3293, "f826fcd01ee3"),
        "BCA_a": Run(3280, "b5fa70b4081c"),
        "ABC_b": Run(3280, "b5fa70b4081c"),
        "BCA_b": Run(3280, "b5fa70b4081c"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slide_eq_w1_gt_w2", "W1=SW(20,30) W2=SW(15,30)", {
        "ABC_a": Run(1421, "3b2ac563915e"),
        "BCA_a": Run(1610, "dbdd6a71a849"),
        "ABC_b": Run(1610, "dbdd6a71a849"),
        "BCA_b": Run(1610, "dbdd6a71a849"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slide_eq_w1_lt_w2", "W1=SW(10,15) W2=SW(15,20)", {
        "ABC_a": Run(630, "a37d1b530571"),
        "BCA_a": Run(700, "82bafe7b75a0"),
        "ABC_b": Run(700, "82bafe7b75a0"),
        "BCA_b": Run(700, "82bafe7b75a0"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slides_eq_w1_lt_w2_s1_gt_s2", "W1=SW(10,20) W2=SW(15,15)", {
        "ABC_a": Run(705, "2f90934262fe"),
        "BCA_a": Run(700, "0f07a0a7b307"),
        "ABC_b": Run(700, "0f07a0a7b307"),
        "BCA_b": Run(700, "0f07a0a7b307"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_2TWJs_w1_gt_w2", "W1=SW(20,20) W2=SW(15,15)", {
        "ABC_a": Run(2767, "d70296001a31"),
        "BCA_a": Run(2790, "836e98911317"),
        "ABC_b": Run(2790, "836e98911317"),
        "BCA_b": Run(2790, "836e98911317"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slides_neq_w1_gt_w2", "W1=SW(20,25) W2=SW(15,15)", {
        "ABC_a": Run(2173, "a0c85fe2651a"),
        "BCA_a": Run(2156, "ef1ddbe9db39"),
        "ABC_b": Run(2156, "ef1ddbe9db39"),
        "BCA_b": Run(2156, "ef1ddbe9db39"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_2TWs_w1_lt_w2", "W1=SW(10,10) W2=SW(25,25)", {
        "ABC_a": Run(2270, "ddedd7981f8f"),
        "BCA_a": Run(2310, "b312e0972d68"),
        "ABC_b": Run(2310, "b312e0972d68"),
        "BCA_b": Run(2310, "b312e0972d68"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slides_neq_w1_lt_w2_s1_lt_s2", "W1=SW(10,15) W2=SW(25,35)", {
        "ABC_a": Run(1120, "e27da024d438"),
        "BCA_a": Run(1055, "0b1c02be5168"),
        "ABC_b": Run(1055, "0b1c02be5168"),
        "BCA_b": Run(1055, "0b1c02be5168"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slide_neq_w1_lt_w2_s1_gt_s2", "W1=SW(10,45) W2=SW(25,25)", {
        "ABC_a": Run(555, "9e8a0c862f34"),
        "BCA_a": Run(550, "40239f4975fb"),
        "ABC_b": Run(550, "40239f4975fb"),
        "BCA_b": Run(550, "40239f4975fb"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA4_slide_neq_w1_eq_w2", "W1=SW(20,20) W2=SW(20,30)", {
        "ABC_a": Run(2900, "5da4b4d7bbf4"),
        "BCA_a": Run(2900, "8bdfb12c26d0"),
        "ABC_b": Run(2900, "8bdfb12c26d0"),
        "BCA_b": Run(2900, "8bdfb12c26d0"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA5", "Sess(gap 5) / Sess(gap 5)", {
        "ABC_a": Run(150, "62ba04534c57"),
        "BCA_a": Run(170, "a4a7ea56e26e"),
        "ABC_b": Run(150, "62ba04534c57"),
        "BCA_b": Run(170, "a4a7ea56e26e"),
    }, equal=[]),
    Case("CaseA6_lB_eq_uB", "W1=I(-10,10) W2=I(-10,10)", {
        "ABC_a": Run(3950, "c814035ec990"),
        "BCA_a": Run(3601, "47d147b250f5"),
        "ABC_b": Run(3601, "47d147b250f5"),
        "BCA_b": Run(3601, "47d147b250f5"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA6_w1_neq_w2", "W1=I(-6,6) W2=I(-10,10)", {
        "ABC_a": Run(2414, "b3661d2ec9cb"),
        "BCA_a": Run(2205, "7f56f327af00"),
        "ABC_b": Run(2205, "7f56f327af00"),
        "BCA_b": Run(2205, "7f56f327af00"),
    }, equal=[('ABC_b', 'BCA_b')]),
    Case("CaseA7", "W1=I(-5,0) W2=I(-7,7)", {
        "ABC_a": Run(776, "83d4ae87acf4"),
        "BCA_a": Run(902, "1e3f2f66faab"),
        "ABC_b": Run(884, "dbea0e6f2c0d"),
        "BCA_b": Run(902, "1e3f2f66faab"),
    }, equal=[]),
]
# fmt: on


def alternating(minutes: range | list[int], first: int = 2) -> list[tuple[int, int]]:
    """(value, minute), values 2 and 3 in turns."""
    return [(2 + (first + i) % 2, minute) for i, minute in enumerate(minutes)]


ODD = alternating(range(1, 80, 2))
EVEN = alternating(range(2, 49, 2)) + alternating(range(50, 83, 2), 3)
STREAMS = {
    "a": ODD,
    "b": EVEN,
    "c": ODD,
    "c2a": [row for row in ODD if not 20 < row[1] < 31 and not 40 < row[1] < 49
            and not 62 < row[1] < 67],
    "c2b": alternating([*range(2, 21, 2), *range(30, 43, 2), *range(50, 63, 2), *range(68, 83, 2)]),
    "a5a": [(2, 5), (3, 14)],
    "a5b": alternating([2, 5, 9, 14, 18, 26, 40, 47, 49, 57]),
    "a5c": [
        (2, 8), (3, 10), (2, 13), (3, 15), (2, 18), (3, 20), (3, 23), (3, 25), (2, 28),
        (3, 30), (2, 32), (3, 35), (2, 37), (3, 42), (3, 47), (2, 53), (3, 55),
    ],
}  # fmt: skip


def write(folder: Path, rows: list[tuple[int, int, int]], number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    columns[2] = pa.array([m * MINUTE for m in columns[2].to_pylist()], pa.timestamp("us", "UTC"))
    file = folder / f"part-{number}.parquet"
    parquet.write_table(pa.table(columns, ["k", "v", "ts"]), file)
    # Spark takes files in the order of their modification times.
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def condition(window: str, left: str, right: str) -> str:
    """A window of the table as SQL."""
    kind, *numbers = re.findall(r"SW|I|Sess|-?\d+", window)
    match kind, [int(n) for n in numbers]:
        case "SW", [length, slide]:
            spec = f"'{length} minutes', '{slide} minutes'"
            text = f"window({left}.ts, {spec}) = window({right}.ts, {spec})"
        case "I", [low, high]:
            text = (
                f"{right}.ts BETWEEN {left}.ts + INTERVAL {low} MINUTES "
                f"AND {left}.ts + INTERVAL {high} MINUTES"
            )
        case "Sess", [gap]:
            sides = (f"session_window({side}.ts, '{gap} minutes')" for side in (left, right))
            text = " = ".join(sides)
        case other:
            raise AssertionError(other)
    return f"{left}.k = {right}.k AND {text}"


def windows_of(text: str) -> list[str]:
    return re.findall(r"SW\(\d+,\d+\)|I\(-?\d+,-?\d+\)|Sess\(gap \d+\)", text)


def sql_of(case: Case, order: str) -> str:
    """The order as a query: joins from left to right, by the time that is handed on."""
    windows = windows_of(case.runs[order].windows or case.windows)
    streams, _, handed = order.lower().partition("_")
    names = sorted(streams)
    columns = ", ".join(f"{n}.k AS {n}k, {n}.v AS {n}v, {n}.ts AS {n}ts" for n in names)
    first, second, *rest = streams
    table = f"{case.streams}{{}} {{}}"
    text = f"SELECT {columns} FROM {table.format(first, first)}"
    # BC is joined by the second window, and A joins it by the first one, through b.ts.
    one, *more = windows if first != "b" or not rest else [windows[1], windows[0]]
    text += f" JOIN {table.format(second, second)} ON {condition(one, first, second)}"
    for third, window in zip(rest, more, strict=True):
        by = "b" if first == "b" else handed
        text += f" JOIN {table.format(third, third)} ON {condition(window, by, third)}"
    return text


def fingerprint(rows: list[tuple[object, ...]], names: list[str]) -> tuple[int, str]:
    distinct = sorted(
        {
            tuple(
                (name.upper(), *row[3 * i : 3 * i + 2], _minute(row[3 * i + 2]))
                for i, name in enumerate(names)
            )
            for row in rows
        }
    )
    return len(distinct), hashlib.sha256(repr(distinct).encode()).hexdigest()[:12]


def _minute(moment: object) -> int:
    return int(moment.timestamp()) // 60  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def results(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[int, str]]]:
    """The fingerprint of each run, and of BCA as another order of what ABC means."""
    folder = tmp_path_factory.mktemp("cases")
    # Streams end at different times; all the same they are to come in one or two epochs.
    settings = {**PATIENT, "spark.headrace.epoch.alignment": "1000 days"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    hr = Headrace(spark, checkpoint=str(folder / "state"))
    for key in settings:
        spark.conf.unset(key)
    for name, rows in STREAMS.items():
        parts = [[(1, *row) for row in rows]]
        if name not in "abc":
            # Of another key, it closes all sessions.
            parts.append([(99, 0, 10_000)])
        for number, part in enumerate(parts):
            write(folder / name, part, number)
        frame = (
            spark.readStream.schema("k BIGINT, v BIGINT, ts TIMESTAMP")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / name))
        )
        hr.stream(name, frame, time="ts", delay="0 seconds")
    queries: dict[str, Query] = {}
    keys: dict[str, str] = {}
    for case in CASES:
        for order in case.runs:
            text = sql_of(case, order)
            keys[f"{case.name} {order}"] = text
            if text not in queries:
                queries[text] = hr.sql(text)
            if order == "ABC_a" and not case.streams:
                keys[f"{case.name} in_order"] = f"{text} in_order"
                queries[f"{text} in_order"] = queries[text].in_order("b", "c", "a")
    for number, query in enumerate(queries.values()):
        query.writeStream.queryName(f"q{number}").format("results").start()
    hr.start(availableNow=True)
    hr.awaitTermination()
    found = {}
    for number, (text, query) in enumerate(queries.items()):
        rows = [tuple(row) for row in hr.results(f"q{number}").collect() if row[0] == 1]
        found[text] = fingerprint(rows, _names(query))
    yield {key: found[text] for key, text in keys.items()}
    hr.stop()


def _names(query: Query) -> list[str]:
    return [name[0] for name in query.columns[::3]]


def test_rows_and_hashes(results: dict[str, tuple[int, str]]) -> None:
    """One test for all cases: they are run together, in one engine.

    ``in_order`` is B with C first, by what the conditions of ABC imply, whether or not BCA means
    the same.
    """
    expected = {}
    for case in CASES:
        for order, run in case.runs.items():
            expected[f"{case.name} {order}"] = run.rows, run.sha12
        if "ABC_a" in case.runs and not case.streams:
            expected[f"{case.name} in_order"] = case.runs["ABC_a"].rows, case.runs["ABC_a"].sha12
    assert len(CASES) == 31
    assert results == expected


@pytest.mark.data
def test_figures_are_those_of_the_folder(shared_data: Path) -> None:
    file = shared_data / "wjr" / "cases.json"
    if not file.exists():
        pytest.skip(f"{file} is not on this machine")
    known = json.loads(file.read_text(encoding="utf-8"))
    assert [case["case"] for case in known] == [case.name for case in CASES]
    for theirs, ours in zip(known, CASES, strict=True):
        assert {
            order: (run["distinct_rows"], run["sha12"]) for order, run in theirs["runs"].items()
        } == {order: (run.rows, run.sha12) for order, run in ours.runs.items()}
        assert [tuple(pair) for pair in theirs["equal"]] == ours.equal
    streams = json.loads((shared_data / "wjr" / "streams.json").read_text(encoding="utf-8"))
    for group, prefix in (("common", ""), ("CaseC2", "c2"), ("CaseA5", "a5")):
        for name, rows in streams[group].items():
            ours_named = STREAMS.get(prefix + name.lower())
            if isinstance(rows, list) and ours_named is not None:
                assert rows == [[1, value, minute] for value, minute in ours_named], name
