"""DOT text: complete, each shared node once, nothing that breaks a DOT string."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings

from headrace.plan.dot import plan_dot, plans_dot
from headrace.plan.nodes import Node, SameWindow, Union
from headrace.plan.windows import Hopping
from tests.support.build import call, col, count, group, join, select, where
from tests.support.plans import BIDS, CLICKS, plans


def drawn(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    nodes = re.findall(r"^  (n\d+) \[", text, re.MULTILINE)
    edges = re.findall(r"^  (n\d+) -> (n\d+)", text, re.MULTILINE)
    return nodes, edges


def test_a_shared_node_is_drawn_once_and_marked() -> None:
    cheap = where(BIDS, call("<", col(BIDS, "price"), 5))
    text = plan_dot(Union((cheap, cheap)))
    nodes, edges = drawn(text)
    assert nodes == ["n0", "n1", "n2"]
    assert edges == [("n0", "n1"), ("n1", "n2"), ("n1", "n2")]
    marked = [line for line in text.splitlines() if "penwidth=2" in line]
    assert len(marked) == 1
    assert "Filter price < 5" in marked[0]


def test_windows_are_marked_and_queries_named() -> None:
    counts = group(BIDS, ("auction",), "ts", Hopping(60_000, 60_000), n=count())
    text = plans_dot([counts, select(BIDS, "price")], ["counts", "prices"])
    framed = [line for line in text.splitlines() if "peripheries=2" in line]
    assert len(framed) == 1
    assert "window(ts, '1 minute')" in framed[0]
    assert '[label="counts"' in text
    assert '[label="prices"' in text


def test_the_sides_of_a_join_are_named_on_the_edges() -> None:
    pairs = join(BIDS, CLICKS, ("auction", "auction"))
    text = plan_dot(pairs)
    assert 'n0 -> n2 [label="a"];' in text
    assert 'n1 -> n2 [label="b"];' in text
    assert "peripheries" not in text
    time = SameWindow(col(pairs, "a.ts"), col(pairs, "b.at"), Hopping(60_000, 60_000))
    assert "peripheries=2" in plan_dot(join(BIDS, CLICKS, ("auction", "auction"), time))


def test_quotes_and_backslashes_are_escaped() -> None:
    text = plan_dot(where(BIDS, call("=", col(BIDS, "channel"), 'a"b\\')))
    (line,) = [line for line in text.splitlines() if "Filter" in line]
    # The literal itself is escaped as SQL first, hence four backslashes.
    assert "'a\\\"b\\\\\\\\'" in line


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans())
def test_every_distinct_node_and_edge_is_there(plan: Node) -> None:
    nodes, edges = drawn(plan_dot(plan))
    distinct = set(plan.walk())
    assert len(nodes) == len(set(nodes)) == len(distinct)
    assert len(edges) == sum(len(node.inputs) for node in distinct)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not on this machine")
def test_graphviz_reads_it() -> None:
    counts = group(BIDS, ("auction",), "ts", Hopping(60_000, 60_000), n=count())
    plan = where(counts, call("=", call("upper", "ä\"'\\n", kind=counts.schema["n"].type), "x"))
    subprocess.run(["dot", "-Tsvg"], input=plan_dot(plan).encode(), capture_output=True, check=True)
