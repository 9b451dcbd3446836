"""Queries that mean the same are one computation, and near misses are not: over all of the SQL.

Pairs are text, written by hand or made by rewriting text (``text_rewrites``), which knows nothing
of how merging finds out. What each query gives is DuckDB's word.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.plan.nodes import Aggregate, Join, Union
from tests.merge.text_rewrites import changed, rewritten
from tests.merge.written import (
    CATALOG,
    WrittenPair,
    are_one,
    by_meaning,
    pairs_of,
    planned,
    random_rows,
    rewritten_pairs,
    told_apart,
)
from tests.support.compare import difference, spark_rows
from tests.support.seeds import Seeds

SAME = pairs_of("same.txt")
SAME_REWRITTEN = rewritten_pairs("same_rewritten.txt")
NEAR_MISSES = rewritten_pairs("near_misses.txt")
#: Queries with functions that DuckDB does not have under these names; Spark is asked for them.
LEFT_TO_SPARK = frozenset({"zeroifnull", "casts as functions", "trim", "plus", "a computed key"})


def named(pair: WrittenPair) -> str:
    return pair.name


# --- the same ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", SAME, ids=named)
def test_pairs_that_mean_the_same(pair: WrittenPair) -> None:
    # One that is found must not keep the reason why it is not.
    assert are_one(pair.one, pair.other) == (not pair.reason)


def test_queries_that_were_rewritten() -> None:
    missed = [pair for pair in SAME_REWRITTEN if not are_one(*pair)]
    assert not missed


def test_most_of_what_means_the_same_is_found() -> None:
    """Of 200 pairs and more, nine tenths; those that are not found say why."""
    pairs = len(SAME) + len(SAME_REWRITTEN)
    missed = [pair for pair in SAME if pair.reason]
    assert len(SAME) >= 150
    assert pairs >= 200
    assert len(missed) <= 0.1 * len(SAME)


@pytest.mark.parametrize(
    "pair", [pair for pair in SAME if pair.name not in LEFT_TO_SPARK], ids=named
)
def test_pairs_that_mean_the_same_give_the_same(pair: WrittenPair) -> None:
    assert not told_apart(pair.one, pair.other)


@pytest.mark.slow
def test_queries_that_were_rewritten_give_the_same() -> None:
    assert not [(*pair, told) for pair in SAME_REWRITTEN if (told := told_apart(*pair))]


@pytest.mark.slow
def test_pairs_that_mean_the_same_give_the_same_in_spark(spark: Any) -> None:
    """Row by row, in the engine whose functions they are."""
    for leaf in CATALOG.values():
        rows = random_rows(leaf, 60, random.Random(5))
        kinds = ", ".join(f"{f.name} {f.type.name}" for f in leaf.schema)
        name = getattr(leaf, "stream", None) or getattr(leaf, "table", "")
        spark.createDataFrame(
            [tuple(row[f.name] for f in leaf.schema) for row in rows], kinds
        ).createOrReplaceTempView(name)
    compared = 0
    for pair in SAME:
        plan = planned(pair.one)
        if any(isinstance(node, Aggregate | Join | Union) for node in plan.walk()):
            continue
        ours, theirs = (spark_rows(spark.sql(sql)) for sql in (pair.one, pair.other))
        if planned(pair.one).schema.names == planned(pair.other).schema.names:
            assert not any(difference(ours, theirs)), pair.name
            compared += bool(ours)
    assert compared >= 90


# --- near misses ---------------------------------------------------------------------------------


def test_near_misses() -> None:
    """All in one space of meanings, so that each may be taken for any other too."""
    merger = by_meaning()
    keys = [(merger.root(planned(one)), merger.root(planned(other))) for one, other in NEAR_MISSES]
    assert not [pair for pair, (a, b) in zip(NEAR_MISSES, keys, strict=True) if a == b]
    assert len(NEAR_MISSES) >= 2_000
    # And they are not all unequal to everything, for then this would show nothing.
    found = defaultdict(list)
    for (_, other), (_, key) in zip(NEAR_MISSES, keys, strict=True):
        found[key].append(other)
    met = [(one, other) for others in found.values() for one, other in pairwise(others)]
    assert len(met) >= 150
    for one, other in random.Random(3).sample(met, 25):
        assert not told_apart(one, other), (one, other)


@pytest.mark.slow
def test_near_misses_are_told_apart_by_rows() -> None:
    assert not [pair for pair in NEAR_MISSES if not told_apart(*pair)]


def test_new_changes_that_are_merged_give_the_same(seeds: Seeds) -> None:
    """Other rewrites and changes every day: whatever is called equal is."""
    merger, merged = by_meaning(), 0
    queries = sorted({one for one, _ in NEAR_MISSES})
    for seed in seeds.some(700, 60):
        chance = random.Random(seed)
        one = chance.choice(queries)
        other = rewritten(one, chance)
        if chance.random() < 0.4:
            other = changed(other, chance)
        try:
            equal = merger.root(planned(one)) == merger.root(planned(other))
        except HeadraceError:
            continue
        if equal:
            merged += 1
            assert not told_apart(one, other), (seed, one, other)
    assert merged >= 20
