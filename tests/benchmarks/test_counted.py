"""Figures that are counted without Spark: the same rows in every run, and orders that save some."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.probing.counted import FIGURES, SIZES, contestants_of, counted_figure, tpcds_files
from benchmarks.probing.runs import ABLATIONS, COMPARED, FIXED


def test_what_is_counted_is_the_same_in_every_run(tmp_path: Path) -> None:
    size = replace(SIZES["tiny"], repeats=2, cycles=(1,))
    files = tpcds_files(size, tmp_path, lambda line: None)
    case = counted_figure("cycle", size, files, [("cr", "wr", "sr", "cu")], lambda line: None)
    assert case.equal
    (saved,) = case.ratio.values()
    # Customers are few for each address, and their returns many: the order is worth something.
    assert 0.3 < saved < 0.9
    assert {len(runs) for runs in case.notes["CPU of each run"].values()} == {2}


def test_ablations_are_those_of_both_models() -> None:
    for figure in FIGURES:
        assert FIXED in contestants_of(figure, SIZES["full"])
    contestants = contestants_of("ablations", SIZES["full"])
    assert set(COMPARED) < set(contestants)
    own = {name for name in ABLATIONS if name != "published_model"}
    published = {name for name, with_ in contestants.items() if with_.get("probe.costModel")}
    assert published == {f"published, {name}" for name in (*own, "dp_pick")}
    assert own < set(contestants)


def test_the_full_size_is_that_of_the_figures() -> None:
    full = SIZES["full"]
    assert full.batches >= 100
    assert full.factor is not None
    assert full.factor >= 4
    assert full.repeats >= 3
