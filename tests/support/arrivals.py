"""Streams in processing time: rows that go by when they arrive, and joins that hand on the ends of
their windows."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from headrace.plan.nodes import Node, Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.oracle import run_epochs
from tests.support.streams import Epochs, Idle, Row

BEGIN = datetime.datetime(2024, 3, 1, 11, 59, 37, tzinfo=datetime.UTC)
COLUMNS = Schema.of((("k", BIGINT), ("v", BIGINT), ("processing_time", TIMESTAMP)))
STREAMS = tuple(Source(name, COLUMNS, "processing_time", processing=True) for name in "abcd")
CATALOG = {source.stream: source for source in STREAMS}


def random_window(chance: random.Random) -> str:
    """Windows of which most are nested in or disjoint from each other; some overlap or cross."""
    slide = chance.choice((4, 8, 8, 16, 16, 32, 32))
    length = slide if chance.random() < 0.75 else chance.choice((slide // 2, slide // 4))
    if chance.random() < 0.06:
        length, slide = chance.choice(((12, 12), (8, 4), (10, 16)))
    # Beginnings, or ends, that lie on those of longer windows.
    offset = chance.choice((0, 0, 0, slide - length, chance.choice((1, 2, 4)) % slide))
    return f"'{length} seconds', '{slide} seconds', '{offset} seconds'"


def random_chain(chance: random.Random) -> str:
    """Two to four joins, of which all but the last hand on the ends of their windows."""
    text, outer, names = "", "", iter("pqrst")
    for number in range(chance.choice((2, 2, 3, 4))):
        alias = next(names)
        window = random_window(chance)
        stream, other = chance.choice("abcd"), chance.choice("abcd")
        if not number:
            source = f"{stream} {alias}"
            time, value = f"{alias}.processing_time", f"{alias}.v"
        else:
            source = f"({text}) {alias}"
            time, value = f"{alias}.seen", f"{alias}.v"
        right, right_time, right_value = f"{other} x", "x.processing_time", "x.v"
        if number and chance.random() < 0.2:
            # Two pairs, each of which hands on an end.
            inner = random_window(chance)
            right = (
                f"(SELECT x.k, y.v, window_time(window) AS seen FROM {other} x "
                "JOIN a y ON x.k = y.k "
                f"AND window(x.processing_time, {inner}) = window(y.processing_time, {inner})) z"
            )
            right_time, right_value = "z.seen", "z.v"
        key = right_time.split(".")[0]
        body = (
            f"{source} JOIN {right} ON {alias}.k = {key}.k "
            f"AND window({time}, {window}) = window({right_time}, {window})"
        )
        if chance.random() < 0.3:
            body += f" AND {value} <= {right_value}"
        if chance.random() < 0.2:
            body += f" WHERE {right_value} > 0"
        text = (
            f"SELECT {alias}.k, {chance.choice((value, right_value))} AS v, "
            f"window_time(window) AS seen FROM {body}"
        )
        outer = f"SELECT {alias}.k, {value} AS v, {right_value} AS w"
        last, last_time = body, right_time
    if chance.random() < 0.2 and last_time.startswith("x."):
        outer += f", {last_time} AS at"
    return f"{outer} FROM {last}"


def random_arrivals(chance: random.Random, epochs: int) -> tuple[Epochs, Idle]:
    """Micro-batches: all rows of one have one time, which no later one is before.

    Keys are skewed and missing, rows come twice, batches are empty or missing, streams idle.
    """
    found: Epochs = []
    idle: Idle = []
    now = BEGIN
    shares = {name: chance.choice((0.5, 0.8, 0.95)) for name in CATALOG}
    for _ in range(epochs):
        epoch: dict[str, list[Row]] = {}
        times = []
        for name in CATALOG:
            # On the border of a window, or a millisecond or so beside it.
            step = datetime.timedelta(seconds=chance.choice((0, 0, 1, 1, 2, 4)))
            beside = datetime.timedelta(microseconds=chance.choice((0, 0, 1, 1_000, 500_000)))
            times.append(now + step + beside)
            if chance.random() > shares[name]:
                continue
            rows: list[Row] = [
                {
                    "k": chance.choice((0, 0, 0, 0, 1, None)),
                    "v": chance.choice((-1, 0, 1, 2, 3, 3, None)),
                    "processing_time": times[-1],
                }
                for _ in range(chance.choice((0, 2, 4, 6)))
            ]
            epoch[name] = rows + rows[: chance.choice((0, 0, 1))]
        found.append(epoch)
        silent = [name for name in CATALOG if name not in epoch]
        idle.append({name for name in silent if chance.random() < 0.3})
        now = max(times)
        if chance.random() < 0.5:
            now = now.replace(microsecond=0) + datetime.timedelta(seconds=1)
    return found, idle


@dataclass(frozen=True)
class Chain:
    """A random chain of joins, rows that arrive, and what comes out of the chain as written."""

    sql: str
    plan: Node
    epochs: Epochs
    idle: Idle
    expected: list[list[tuple[Any, ...]]]


def chain_with_rows(chance: random.Random, wanted: Callable[[Node], bool]) -> Chain:
    """A chain that is wanted and gives rows: some windows never end together, so that none come."""
    for _ in count():
        sql = random_chain(chance)
        plan = plan_query(sql, CATALOG).plan
        for _ in range(3 if wanted(plan) else 0):
            epochs, idle = random_arrivals(chance, epochs=5)
            expected = run_epochs(plan, epochs, idle=idle)
            if 0 < sum(map(len, expected)) < 2_000:
                return Chain(sql, plan, epochs, idle, expected)
    raise AssertionError("there is always another chain")
