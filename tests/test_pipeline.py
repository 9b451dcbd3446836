"""Pipeline files: what they may say, and where each error points. No Spark here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Position
from headrace.pipeline import (
    Pipeline,
    PipelineError,
    QuerySpec,
    SinkSpec,
    StreamSpec,
    TableSpec,
    TriggerEntry,
    ViewSpec,
    load_pipeline,
    parse_pipeline,
)

WHOLE = """\
checkpoint: state
trigger: {processingTime: 2 seconds}
settings:
  spark.sql.shuffle.partitions: 4
  spark.headrace.allowQueryChange: yes
streams:
  - name: bids
    format: json
    path: in/bids
    schema: auction BIGINT, price DOUBLE, ts TIMESTAMP
    options: {maxFilesPerTrigger: 1, multiLine: true}
    time: ts
    delay: 10 seconds
    ttl: 1 hour
  - name: ticks
    format: rate
    time: processing
tables:
  - name: person
    format: parquet
    path: s3://bucket/person
queries:
  - name: hot
    sql: |
      SELECT auction, window, COUNT(*) AS n
      FROM bids
      GROUP BY auction, window(ts, '10 minutes')
    outputMode: update
    sink: {format: parquet, path: /out, options: {compression: zstd}}
  - name: all_ticks
    sql: SELECT * FROM ticks
"""

MINIMAL = """\
checkpoint: state
streams:
- {name: s, format: rate, time: timestamp}
queries:
- {name: q, sql: SELECT * FROM s}
"""

NOWHERE = Position(0, 0)


def refused(text: str) -> PipelineError:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text, file="p.yaml")
    assert "\n" not in str(caught.value), "an error is one line"
    return caught.value


def at(error: PipelineError) -> tuple[int, int]:
    assert error.position is not None
    assert error.position.file == "p.yaml"
    return error.position.line, error.position.column


def test_everything_a_file_may_say(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(WHOLE, encoding="utf-8")
    assert load_pipeline(file) == Pipeline(
        streams=(
            StreamSpec(
                "bids",
                "json",
                str(tmp_path / "in/bids"),
                "auction BIGINT, price DOUBLE, ts TIMESTAMP",
                {"maxFilesPerTrigger": "1", "multiLine": "true"},
                "ts",
                "10 seconds",
                "1 hour",
                None,
                NOWHERE,
            ),
            StreamSpec("ticks", "rate", None, None, {}, "processing", None, None, None, NOWHERE),
        ),
        tables=(TableSpec("person", "parquet", "s3://bucket/person", None, {}, NOWHERE),),
        queries=(
            QuerySpec(
                "hot",
                "SELECT auction, window, COUNT(*) AS n\nFROM bids\n"
                "GROUP BY auction, window(ts, '10 minutes')\n",
                "update",
                SinkSpec("parquet", "/out", {"compression": "zstd"}),
                NOWHERE,
                NOWHERE,
                True,
            ),
            QuerySpec(
                "all_ticks", "SELECT * FROM ticks", "append", SinkSpec(), NOWHERE, NOWHERE, False
            ),
        ),
        checkpoint=str(tmp_path / "state"),
        trigger=TriggerEntry(available_now=False, processing_time="2 seconds"),
        settings={
            "spark.sql.shuffle.partitions": "4",
            "spark.headrace.allowQueryChange": "true",
        },
    )


def test_a_minimal_file_runs_once_to_the_console() -> None:
    pipeline = parse_pipeline(MINIMAL)
    assert pipeline.trigger == TriggerEntry(available_now=True)
    assert pipeline.queries[0].sink == SinkSpec("console")
    assert pipeline.checkpoint == "state"


def test_a_position_in_the_sql_is_given_as_one_in_the_file() -> None:
    block, flow = parse_pipeline(WHOLE, file="p.yaml").queries
    place = block.position_in_file(Position(line=2, column=6))
    assert WHOLE.splitlines()[place.line - 1][place.column - 1 :] == "bids"
    assert place.file == "p.yaml"
    place = flow.position_in_file(Position(line=1, column=15))
    assert WHOLE.splitlines()[place.line - 1][place.column - 1 :] == "SELECT * FROM ticks"


def test_an_idle_time() -> None:
    text = MINIMAL.replace("time: timestamp", "time: timestamp, idle: 5 minutes")
    assert parse_pipeline(text).streams[0].idle == "5 minutes"
    wrong = refused(text.replace("5 minutes", "0 minutes"))
    assert "idle must be positive" in wrong.message


def test_blank_first_lines_of_a_block_count() -> None:
    text = MINIMAL.replace("{name: q, sql: SELECT * FROM s}", "name: q\n  sql: |\n\n    SELECT x\n")
    query = parse_pipeline(text).queries[0]
    place = query.position_in_file(Position(2, 8))
    assert text.splitlines()[place.line - 1][place.column - 1 :] == "x"


@pytest.mark.parametrize(
    ("old", "new", "where", "message", "hint"),
    [
        ("time: ts", "tiem: ts", (12, 5), "a stream has no key 'tiem'", "did you mean 'time'?"),
        ("    time: ts\n", "", (7, 5), "a stream needs 'time'", "add 'time: …'"),
        ("format: rate", "format: 7", (16, 13), "'format' must be text, not a number", '"7"'),
        ("format: rate", "format:", (16, 12), "'format' must be text, not nothing", None),
        ("format: rate", "format: ' '", (16, 13), "'format' is empty", None),
        ("format: rate", "format: [rate]", (16, 13), "'format' must be text, not a list", None),
        ("name: ticks", "name: on", (15, 11), "must be text, not true or false", 'quote it: "on"'),
        ("name: ticks", "name: a-b", (15, 11), "'a-b' cannot be a name", "letters"),
        (
            "name: ticks",
            "name: Bids",
            (15, 11),
            "a second stream, table or view named 'Bids'",
            "line 7",
        ),
        ("name: person", "name: bids", (19, 11), "a second stream, table or view named", "line 7"),
        ("name: all_ticks", "name: hot", (30, 11), "a second query named 'hot'", "line 23"),
        ("10 seconds", "10 secnds", (13, 12), "unknown unit 'secnds'", "seconds"),
        ("10 seconds", "-10 seconds", (13, 12), "delay must not be negative", None),
        ("1 hour", "0 hours", (14, 10), "ttl must be positive", None),
        ("2 seconds", "0 seconds", (2, 27), "the trigger must be positive", None),
        ("{processingTime: 2 seconds}", "once", (2, 10), "no trigger 'once'", "availableNow"),
        ("{processingTime: 2 seconds}", "{}", (2, 10), "a trigger is empty", "availableNow"),
        ("outputMode: update", "outputMode: updat", (28, 17), "no outputMode", "'update'"),
        ("{format: parquet, ", "{format: kafka, ", (29, 20), "no format 'kafka'", "one of parquet"),
        (", path: /out", "", (29, 11), "a parquet sink needs a path", None),
        ("compression: zstd", "compression: ", (29, 63), "not nothing", None),
        ("maxFilesPerTrigger: 1", "maxFilesPerTrigger: 2024-01-01", (11, 35), "a date", "quote"),
        ("maxFilesPerTrigger: 1", "a: 1, a: 2", (11, 21), "'a' is given twice", None),
        ("allowQueryChange", "alowQueryChange", (5, 35), "no setting", "allowQueryChange?"),
        ("allowQueryChange: yes", "allowQueryChange: 3", (5, 36), "is '3'", "true or false"),
        ("spark.sql.shuffle", "sql.shuffle", (4, 27), "no setting 'sql.shuffle", "spark."),
        ("checkpoint: state\n", "", (1, 1), "a pipeline needs 'checkpoint'", "add"),
        ("queries:\n", "querys:\n", (22, 1), "a pipeline has no key 'querys'", "'queries'?"),
        ("format: rate", "format: 'rate", (27, 37), "not YAML", None),
        ("name: ticks", "name: \tticks", (15, 11), "not YAML", None),
    ],
)
def test_errors_say_where_and_what(
    old: str, new: str, where: tuple[int, int], message: str, hint: str | None
) -> None:
    assert old in WHOLE
    error = refused(WHOLE.replace(old, new, 1))
    assert message in error.message
    assert (hint or "") in (error.hint or "")
    assert at(error) == where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the pipeline is empty"),
        ("# only a comment\n", "the pipeline is empty"),
        ("- a\n- b\n", "a pipeline must be a mapping, not a list"),
        ("just words", "a pipeline must be a mapping, not text"),
        ("? [a, b]\n: 1\n", "a key of a pipeline must be text"),
        ("checkpoint: x\nstreams: {name: s}\n", "'streams' must be a list, not a mapping"),
        ("checkpoint: x\nstreams: [s]\n", "a stream must be a mapping, not text"),
        ("checkpoint: x\nstreams: []\nqueries: []\n", "at least one stream"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("checkpoint: \x00", "not YAML"),
        ("[" * 5_000, "nested too deeply"),
    ],
)
def test_files_that_are_no_pipelines(text: str, message: str) -> None:
    assert message in refused(text).message


def test_a_pipeline_without_queries_is_refused() -> None:
    error = refused(MINIMAL[: MINIMAL.index("queries")])
    assert error.message == "a pipeline needs at least one query"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file"):
        load_pipeline(tmp_path / "nothing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"checkpoint: \xe9")
    with pytest.raises(PipelineError, match="not UTF-8"):
        load_pipeline(tmp_path / "latin.yaml")


@given(
    st.integers(0, len(WHOLE)),
    st.integers(0, 12),
    st.text(st.sampled_from("abt: \n-{}[]|>&*!#'\"?,%@`\t"), max_size=6),
)
def test_no_text_raises_anything_else(start: int, length: int, insert: str) -> None:
    """A damaged file is still a pipeline, or an error of one line with a position."""
    errors: list[PipelineError] = []
    try:
        parse_pipeline(WHOLE[:start] + insert + WHOLE[start + length :])
    except PipelineError as error:
        errors.append(error)
    assert all(error.position is not None and "\n" not in str(error) for error in errors)


VIEWS = """\
views:
  - name: dear
    sql: |
      SELECT auction, price
      FROM bids
  - {name: cheap, sql: SELECT * FROM dear}
"""


def test_views() -> None:
    text = WHOLE.replace("queries:\n", VIEWS + "queries:\n")
    dear, cheap = parse_pipeline(text, file="p.yaml").views
    assert dear == ViewSpec(
        "dear", "SELECT auction, price\nFROM bids\n", NOWHERE, NOWHERE, sql_is_block=True
    )
    assert dear.position_in_file(Position(2, 6)) == Position(26, 12, "p.yaml")
    assert cheap.position_in_file(Position(1, 10)) == Position(27, 24, "p.yaml")


@pytest.mark.parametrize(
    ("old", "new", "where", "message", "hint"),
    [
        ("name: dear", "name: Bids", (23, 11), "a second stream, table or view", "line 7"),
        ("name: cheap", "name: DEAR", (27, 12), "a second stream, table or view", "line 23"),
        ("name: dear", "name: a b", (23, 11), "'a b' cannot be a name", "letters"),
        ("    sql: |\n", "    sq: |\n", (24, 5), "a view has no key 'sq'", "'sql'?"),
        (", sql: SELECT * FROM dear", "", (27, 5), "a view needs 'sql'", "add"),
    ],
)
def test_errors_in_views_say_where_and_what(
    old: str, new: str, where: tuple[int, int], message: str, hint: str
) -> None:
    assert old in VIEWS
    error = refused(WHOLE.replace("queries:\n", VIEWS.replace(old, new, 1) + "queries:\n"))
    assert message in error.message
    assert hint in (error.hint or "")
    assert at(error) == where


def test_a_view_with_values_of_the_environment() -> None:
    text = MINIMAL + "views:\n- name: v\n  sql: |\n    SELECT * FROM ${WHERE} x JOIN nowhere\n"
    view = parse_pipeline(text, file="p.yaml", environment={"WHERE": "some_stream"}).views[0]
    assert view.sql == "SELECT * FROM some_stream x JOIN nowhere\n"
    place = view.position_in_file(Position(1, view.sql.index("nowhere") + 1))
    assert text.splitlines()[place.line - 1][place.column - 1 :] == "nowhere"
