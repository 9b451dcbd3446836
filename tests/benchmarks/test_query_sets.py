"""Query sets: every operator read as one node, the counts of the published sets, and our own."""

from __future__ import annotations

import datetime
import lzma
import random
import re
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from benchmarks import BenchError
from benchmarks.merging.query_set_reader import QuerySetError, read_query_set, read_query_set_file
from benchmarks.merging.query_sets import SHAPES, GeneratedQuery, generate, sources
from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Literal, Named
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    OutputMode,
    Project,
    SameWindow,
    Sink,
    Source,
    Union,
)
from headrace.plan.times import event_times
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP, Schema
from headrace.plan.windows import Hopping
from headrace.sql import plan_query
from tests.support.oracle_epochs import run_epochs

FROM, SINK = 'Query::from("example1")', ".sink(NullOutputSinkDescriptor::create());"
MINUTE = 60_000


def stream(number: int, letters: str) -> Source:
    fields = [(letter, BIGINT) for letter in letters]
    times = [("time1", TIMESTAMP), ("time2", TIMESTAMP)]
    return Source(f"example{number}", Schema.of(fields + times), "time1")


ONE, TWO = stream(1, "abcdef"), stream(2, "ghijkl")


def column(name: str) -> Column:
    return Column(name, TIMESTAMP if name[:-1].endswith("time") else BIGINT)


def figure(value: int) -> Literal:
    return Literal(value, BIGINT)


def number(operator: str, left: Expr, right: Expr) -> Call:
    return Call(operator, (left, right), BIGINT)


def condition(operator: str, left: Expr, right: Expr) -> Call:
    return Call(operator, (left, right), BOOLEAN)


def columns(*names: str, **changed: Expr) -> tuple[Named, ...]:
    return tuple(Named(name, changed.get(name, column(name))) for name in names)


def plan_of(text: str) -> Node:
    (query,) = read_query_set([text + SINK])
    return query.input


def attribute(name: str) -> str:
    return f'Attribute("{name}")'


def tumbling(time: str, spec: str) -> str:
    return f".window(TumblingWindow::of(EventTime({attribute(time)}), {spec}))"


def sliding(time: str, spec: str) -> str:
    return f".window(SlidingWindow::of(EventTime({attribute(time)}), {spec}))"


A, B, C = (column(name) for name in "abc")
MINUTES = tumbling("time1", "Minutes(5)")


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ("", ONE),
        ('.filter(Attribute("a")<=5)', Filter(ONE, condition("<=", A, figure(5)))),
        (
            '.filter(Attribute("a") - 5==Attribute("b") - 5)',
            Filter(ONE, condition("=", number("-", A, figure(5)), number("-", B, figure(5)))),
        ),
        (
            '.map(Attribute("a")=Attribute("a") - Attribute("b") + 2 * Attribute("c") * 3)',
            Project(
                ONE,
                columns(
                    *ONE.schema.names,
                    a=number(
                        "+",
                        number("-", A, B),
                        number("*", number("*", figure(2), C), figure(3)),
                    ),
                ),
            ),
        ),
        (
            '.project(Attribute("b").as("x"),Attribute("a"),Attribute("time2"))',
            Project(ONE, (Named("x", B), *columns("a", "time2"))),
        ),
        ('.unionWith(Query::from("example2"))', Union((ONE, TWO))),
        (
            '.unionWith(Query::from("example2").filter(Attribute("g")>1)).filter(Attribute("a")>2)',
            Filter(
                Union((ONE, Filter(TWO, condition(">", column("g"), figure(1))))),
                condition(">", A, figure(2)),
            ),
        ),
        (
            f'{MINUTES}.byKey(Attribute("b")).apply(Sum(Attribute("a")))',
            Aggregate(
                ONE,
                columns("b"),
                column("time1"),
                (Hopping(5 * MINUTE, 5 * MINUTE),),
                (Named("a", AggregateCall("sum", (A,), BIGINT)),),
            ),
        ),
        (
            sliding("time2", "Minutes(1), Seconds(90)")
            + '.apply(Avg(Attribute("a"))->as(Attribute("mean")))',
            Aggregate(
                ONE,
                (),
                column("time2"),
                (Hopping(MINUTE, 90_000),),
                (Named("mean", AggregateCall("avg", (A,), DOUBLE)),),
            ),
        ),
        (
            '.joinWith(Query::from("example2")).where(Attribute("a")).equalsTo(Attribute("g"))'
            + sliding("time2", "Seconds(60), Seconds(60)"),
            Join(
                ONE,
                TWO,
                JoinKind.INNER,
                "example1",
                "example2",
                ((column("example1.a"), column("example2.g")),),
                SameWindow(
                    column("example1.time2"), column("example2.time2"), Hopping(MINUTE, MINUTE)
                ),
            ),
        ),
    ],
)
def test_an_operator_is_one_node(operators: str, expected: Node) -> None:
    assert plan_of(FROM + operators) == expected


def test_a_sink_is_named_by_its_line() -> None:
    queries = read_query_set([FROM + SINK, "\n", f'{FROM}.filter(Attribute("a")<1){SINK}\n'])
    assert queries == [
        Sink(ONE, "q1", "noop", OutputMode.APPEND),
        Sink(Filter(ONE, condition("<", A, figure(1))), "q3", "noop", OutputMode.APPEND),
    ]


def test_an_aggregate_of_its_key_gets_a_name_of_its_own() -> None:
    plan = plan_of(f'{FROM}{MINUTES}.byKey(Attribute("b")).apply(Max(Attribute("b")))')
    assert plan.schema.names == ("b", "window", "b_2")


def joined(left: str, right: str, keys: tuple[str, str]) -> str:
    where = f".where({attribute(keys[0])}).equalsTo({attribute(keys[1])})"
    return f"{left}.joinWith({right}){where}{MINUTES}"


@pytest.mark.parametrize("swapped", [False, True])
def test_above_a_join_a_name_that_both_sides_have_is_that_of_the_smaller_stream(
    swapped: bool,
) -> None:
    one, four = FROM, 'Query::from("example4")'
    join = joined(four, one, ("b", "a")) if swapped else joined(one, four, ("a", "b"))
    mine = Column("example1.a", BIGINT)

    filtered = plan_of(join + '.filter(Attribute("a")<1)')
    assert isinstance(filtered, Filter)
    assert filtered.predicate == condition("<", mine, figure(1))

    mapped = plan_of(join + '.map(Attribute("a")=Attribute("a") * 2)')
    assert isinstance(mapped, Project)
    changed = [named for named in mapped.columns if not isinstance(named.expr, Column)]
    assert changed == [Named("example1.a", number("*", mine, figure(2)))]
    assert mapped.schema == mapped.input.schema

    grouped = plan_of(f'{join}{MINUTES}.byKey(Attribute("a")).apply(Sum(Attribute("f")))')
    assert isinstance(grouped, Aggregate)
    assert grouped.keys == (Named("a", mine),)
    assert grouped.time == column("example1.time1")
    assert grouped.schema.names == ("a", "window", "f")


def test_an_attribute_of_one_side_is_found_there() -> None:
    few = f'{FROM}.project(Attribute("a"),Attribute("time1"),Attribute("time2"))'
    plan = plan_of(joined(few, 'Query::from("example4")', ("a", "b")) + '.project(Attribute("c"))')
    assert isinstance(plan, Project)
    assert plan.columns == (Named("c", column("example4.c")),)


def test_a_stream_that_is_joined_with_itself() -> None:
    plan = plan_of(joined(FROM, FROM, ("a", "b")))
    assert isinstance(plan, Join)
    assert (plan.left_alias, plan.right_alias) == ("example1", "example1_2")
    assert plan.keys == ((column("example1.a"), column("example1_2.b")),)


def test_the_number_of_schemas_is_found_by_the_attributes_of_all_queries() -> None:
    of_four = f'Query::from("example4").filter(Attribute("{{}}")<1){SINK}'
    either = f'Query::from("example5"){SINK}'
    assert read_query_set([either, of_four.format("a")])[0].schema.names[0] == "g"
    assert read_query_set([either, of_four.format("s")])[0].schema.names[0] == "a"
    assert read_query_set([either], schemas=4)[0].schema.names[0] == "a"
    with pytest.raises(QuerySetError, match=r"no attribute .* line 2"):
        read_query_set([of_four.format("a"), of_four.format("s")])


def test_a_bad_line_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    of_four = f'Query::from("example4").filter(Attribute("s")<1){SINK}'
    lines = [FROM + SINK, "Query::", of_four, f"{FROM}.nothing(){SINK}", "\ufffd", FROM + SINK]
    bad: list[QuerySetError] = []
    queries = read_query_set(lines, "some.txt", on_bad=bad.append)
    # The attribute s is that of four schemas, by which one line fewer is bad.
    assert [query.name for query in queries] == ["q1", "q3", "q6"]
    assert [error.position and error.position.line for error in bad] == [2, 4, 5]
    with pytest.raises(QuerySetError, match="line 2"):
        read_query_set(lines)
    path = tmp_path / "set.txt"
    path.write_bytes((FROM + SINK).encode() + b"\n\xff\xfe\n" + (FROM + SINK).encode())
    bad.clear()
    assert len(read_query_set_file(path, on_bad=bad.append)) == 2
    assert len(bad) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{FROM}¦", "expected ., not the end of the line"),
        (f"{FROM}{SINK} ¦x", "expected the end of the line, not x"),
        (f"{FROM}{SINK[:-1]}¦", "expected ;, not the end of the line"),
        ("¦SELECT 1", "expected Query, not SELECT"),
        (f"Query::from(¦example1){SINK}", "expected a name in quotes, not example1"),
        (f'Query::from(¦"other"){SINK}', "no stream 'other'"),
        (f"{FROM}.¦flatMap(1){SINK}", "expected one of filter, map,"),
        (f'{FROM}.filter(Attribute("a")¦){SINK}', "expected one of <, <=,"),
        (f'{FROM}.filter(Attribute("a")<¦-1){SINK}', "expected a number, not -"),
        (f'{FROM}.filter(1<¦Attribute("g")){SINK}', "no attribute 'g'"),
        (f'{FROM}.filter(¦Attribute("time1")<1){SINK}', "time1 is a timestamp"),
        (f'{FROM}.¦map(Attribute("x")=1){SINK}', "no attribute 'x'"),
        (f'{FROM}.¦map(Attribute("time1")=1){SINK}', "cannot become a bigint"),
        (f'{FROM}.¦project(Attribute("a"),Attribute("a")){SINK}', "two columns are named a"),
        (f"{FROM}.project(¦){SINK}", "expected Attribute, not )"),
        (
            f'{FROM}.project(Attribute("a")).¦unionWith(Query::from("example2")){SINK}',
            "UNION ALL of 1 and 8 columns",
        ),
        (
            joined(f'{FROM}.project(Attribute("a"))', FROM, ("a", "a")).replace("join", "¦join")
            + SINK,
            "the left side of the join does not have 'time1'",
        ),
        (
            f'{FROM}{tumbling("time1", "¦Hours(1)")}.apply(Sum(Attribute("a"))){SINK}',
            "expected one of Seconds, Minutes, not Hours",
        ),
        (
            f'{FROM}.¦{tumbling("time1", "Minutes(0)")[1:]}.apply(Sum(Attribute("a"))){SINK}',
            "a window's length must be positive",
        ),
        (
            f'{FROM}.¦{tumbling("a", "Minutes(1)")[1:]}.apply(Sum(Attribute("a"))){SINK}',
            "windows are made of a timestamp",
        ),
        (f'{FROM}.¦{MINUTES[1:]}.apply(Sum(Attribute("time1"))){SINK}', "has no sum"),
        (f'{FROM}{MINUTES}.apply(¦Count(Attribute("a"))){SINK}', "expected one of Sum, Avg"),
    ],
)
def test_an_error_names_its_place(text: str, message: str) -> None:
    """The place is marked by a broken bar."""
    with pytest.raises(QuerySetError) as caught:
        read_query_set([FROM + SINK, text.replace("¦", "")], "some.txt")
    assert message in str(caught.value)
    assert f"(some.txt: line 2, column {text.index('¦') + 1})" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_may_be_compressed(tmp_path: Path) -> None:
    text = f"{FROM}{SINK}\n"
    plain, packed = tmp_path / "set.txt", tmp_path / "set.txt.xz"
    plain.write_text(text)
    packed.write_bytes(lzma.compress(text.encode()))
    assert read_query_set_file(plain) == read_query_set_file(packed) == read_query_set([text])
    plain.write_text(text[:-3])
    with pytest.raises(QuerySetError, match=r"set\.txt: line 1, column 64"):
        read_query_set_file(plain)


@pytest.mark.data
def test_nodes_of_the_published_sets_are_those_of_the_reference(shared_data: Path) -> None:
    folder = shared_data / "isqm"
    if not folder.is_dir():
        pytest.skip(f"the query sets {folder} are not on this machine")
    table = (folder / "reference.md").read_text(encoding="utf-8")
    wanted = {name: int(t) for name, t in re.findall(r"^\| (\S+\.txt) \| (\d+) \|", table, re.M)}
    assert len(wanted) == 7
    found = {}
    for name in wanted:
        queries = read_query_set_file(folder / f"{name}.xz")
        found[name] = sum(1 for query in queries for _ in query.walk())
    assert found == wanted


# --- generating ----------------------------------------------------------------------------------


def members(queries: list[GeneratedQuery]) -> dict[int | None, list[Sink]]:
    found = defaultdict(list)
    for query in queries:
        found[query.group].append(query.sink)
    return found


def rows_of(plans: list[Node]) -> list[Counter[tuple[Any, ...]]]:
    """What each of the plans gives for the same rows, once all windows are closed."""
    chance = random.Random(5)
    begin = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    epochs: list[dict[str, list[dict[str, Any]]]] = [{}, {}]
    for each in sources(4):
        for epoch, minutes in ((0, [chance.randrange(300) for _ in range(300)]), (1, [3000])):
            epochs[epoch][each.stream] = [
                {
                    field.name: chance.randrange(100)
                    if field.type == BIGINT
                    else begin + datetime.timedelta(minutes=minute)
                    for field in each.schema
                }
                for minute in minutes
            ]
    return [Counter(row for rows in run_epochs(plan, epochs) for row in rows) for plan in plans]


def test_the_same_arguments_give_the_same_queries() -> None:
    assert generate(50, groups=7, distinct=0.2, seed=3) == generate(
        50, groups=7, distinct=0.2, seed=3
    )
    assert generate(50, groups=7, seed=3) != generate(50, groups=7, seed=4)


def test_groups_are_of_equal_size_and_the_rest_is_distinct() -> None:
    queries = generate(120, groups=10, distinct=0.25)
    sizes = Counter(query.group for query in queries)
    assert sizes.pop(None) == 30
    assert sizes == dict.fromkeys(range(10), 9)
    assert [query.sink.name for query in queries] == [f"q{n}" for n in range(1, 121)]
    assert len({query.sink.input for query in queries}) == 120


def test_a_large_group_has_no_query_twice() -> None:
    for group, sinks in members(generate(2400, groups=20)).items():
        assert len({str(s.input) for s in sinks}) == 120, group


@pytest.mark.parametrize(
    "options",
    [{}, {"distinct": 1.0}, {"overlap": 0}, {"overlap": 60}, {"streams": 1}, {"streams": 9}],
)
def test_plans_are_valid_and_have_sql(options: dict[str, Any]) -> None:
    read = sources(options.get("streams", 4))
    catalog = {each.stream: each for each in read}
    for query in generate(150, groups=30, **options):
        leaves = [node for node in query.sink.walk() if isinstance(node, Source)]
        assert set(leaves) <= set(read)
        assert len(set(leaves)) == len(leaves)
        again = plan_query(query.to_sql(), catalog).plan
        assert again.schema == query.sink.schema
        assert event_times(again) == event_times(query.sink)


def test_all_shapes_occur() -> None:
    kinds = Counter(
        tuple(
            sorted({type(n).__name__ for n in query.sink.walk()} & {"Union", "Join", "Aggregate"})
        )
        for query in generate(40, groups=20)
    )
    assert kinds == {
        (): 8,
        ("Union",): 8,
        ("Aggregate",): 8,
        ("Join",): 8,
        ("Aggregate", "Join"): 8,
    }
    assert len(kinds) == len(SHAPES)


def test_queries_of_a_group_mean_the_same_and_others_do_not() -> None:
    groups = members(generate(60, groups=20, seed=1))
    catalog = {each.stream: each for each in sources(4)}
    firsts = {}
    for group, sinks in groups.items():
        sql = plan_query(GeneratedQuery(sinks[0], group).to_sql(), catalog).plan
        first, *others = rows_of([*sinks, sql])
        assert all(other == first for other in others), sinks[0]
        if first:
            firsts[group] = first
    assert len(firsts) > 10
    for one, other in combinations(firsts, 2):
        assert firsts[one] != firsts[other]


def upstream(sink: Sink) -> list[str]:
    """The operators of the side that has some, next to the source first."""
    longest = max(paths(sink), key=len)
    return [str(node).splitlines()[0] for node in reversed(longest[:-1])]


def paths(node: Node) -> list[list[Node]]:
    below = [path for child in node.inputs for path in paths(child)]
    return [[node, *path] for path in below or [[]]]


@pytest.mark.parametrize("overlap", [20, 39])
def test_queries_that_overlap_by_a_fifth_have_the_first_step_in_common(overlap: int) -> None:
    for sinks in members(generate(60, groups=10, overlap=overlap)).values():
        assert len({frozenset(upstream(query)[:2]) for query in sinks}) == 1
        assert len({tuple(upstream(query)[2:4]) for query in sinks}) > 1


def test_queries_overlap_as_far_as_they_are_asked_to() -> None:
    for overlap, whole in ((80, False), (100, True)):
        groups = members(generate(15, groups=5, overlap=overlap)).values()
        alike = [len({*map(str, map(sorted_rows, rows_of(list(g))))}) == 1 for g in groups]
        assert all(alike) == whole


def sorted_rows(rows: Counter[tuple[Any, ...]]) -> list[str]:
    return sorted(map(str, rows.elements()))


@pytest.mark.parametrize(
    "options", [{"count": 0}, {"groups": 0}, {"distinct": 1.5}, {"overlap": 101}, {"streams": 0}]
)
def test_sets_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(BenchError, match="no query set of"):
        generate(**{"count": 5, **options})


def test_distinct_queries_run_out() -> None:
    with pytest.raises(BenchError, match="no 40001 distinct queries on 1 streams"):
        generate(1, streams=1, groups=40_001)
