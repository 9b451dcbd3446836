"""Statements: what each says, and what is said of those that cannot be read. Without Spark."""

from __future__ import annotations

import pytest

from headrace.errors import Position
from headrace.pipeline import QuerySpec, StreamSpec, TableSpec, ViewSpec
from headrace.statements import (
    Create,
    Describe,
    Drop,
    Explain,
    ExplainMode,
    Kind,
    Pause,
    Resume,
    Select,
    Show,
    ShowResults,
    StatementError,
    parse_script,
    parse_statement,
)

HERE = Position(1, 1)


def created(text: str) -> object:
    statement = parse_statement(text)
    assert isinstance(statement, Create)
    return statement.spec


def test_a_stream_is_what_a_pipeline_file_says_of_one() -> None:
    spec = created(
        "CREATE STREAM bids (auction INT, price DECIMAL(10, 2), ts TIMESTAMP)\n"
        "FROM Kafka WITH (time = 'ts', delay = '10 seconds', idle='5 minutes',\n"
        "  kafka.bootstrap.servers = 'a:1', `subscribe` = bids, \"startingOffsets\" = 'earliest',\n"
        "  maxOffsetsPerTrigger = 100, failOnDataLoss = FALSE)"
    )
    assert spec == StreamSpec(
        "bids",
        "kafka",
        None,
        "auction INT, price DECIMAL(10, 2), ts TIMESTAMP",
        {
            "kafka.bootstrap.servers": "a:1",
            "subscribe": "bids",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "100",
            "failOnDataLoss": "false",
        },
        "ts",
        "10 seconds",
        None,
        "5 minutes",
        HERE,
    )


def test_tables_views_and_queries() -> None:
    assert created("CREATE TABLE t FROM parquet 'in/t'") == TableSpec(
        "t", "parquet", "in/t", None, {}, HERE
    )
    assert created("create table t from csv with (path='x', header=true)") == TableSpec(
        "t", "csv", "x", None, {"header": "true"}, HERE
    )
    view = created("CREATE VIEW v AS\n  SELECT * FROM bids -- all of them")
    assert isinstance(view, ViewSpec)
    assert view.sql == "SELECT * FROM bids"
    query = parse_statement(
        "CREATE QUERY IF NOT EXISTS hot-items WITH (format = parquet, path = '/out', "
        "outputMode = update, tags = 'a, b') AS SELECT 1"
    )
    assert isinstance(query, Create)
    assert isinstance(query.spec, QuerySpec)
    assert query.if_not_exists
    assert query.tags == ("a", "b")
    assert query.spec.name == "hot-items"
    assert (query.spec.sink.format, query.spec.sink.path) == ("parquet", "/out")
    assert query.spec.output_mode == "update"
    plain = created("INSERT INTO q WITH c AS (SELECT 1) SELECT * FROM c")
    assert isinstance(plain, QuerySpec)
    assert plain.sql == "WITH c AS (SELECT 1) SELECT * FROM c"
    assert plain.sink.format == "results"
    assert plain.output_mode is None


def test_everything_else() -> None:
    assert parse_statement("DROP VIEW IF EXISTS v;") == Drop(Kind.VIEW, "v", True, HERE)
    assert parse_statement("pause query q") == Pause("q", HERE)
    assert parse_statement("RESUME q") == Resume("q", False, HERE)
    assert parse_statement("RESUME QUERY q FROM NOW") == Resume("q", True, HERE)
    assert [parse_statement(f"SHOW {kind.plural}") for kind in Kind] == [Show(k) for k in Kind]
    assert parse_statement("SHOW RESULTS OF q LIMIT 3") == ShowResults("q", 3, HERE)
    assert parse_statement("DESC QUERY q") == Describe(Kind.QUERY, "q", HERE)
    assert parse_statement("DESCRIBE bids") == Describe(None, "bids", HERE)
    assert parse_statement("EXPLAIN q") == Explain(ExplainMode.SIMPLE, "q", None, HERE)
    for mode in ExplainMode:
        explain = parse_statement(f"EXPLAIN {mode.value} q")
        assert isinstance(explain, Explain)
        assert explain.mode is mode
    select = parse_statement("EXPLAIN COST SELECT ';' FROM x")
    assert select == Explain(ExplainMode.COST, None, "SELECT ';' FROM x", HERE)
    assert parse_statement("(SELECT 1) UNION ALL SELECT 2") == Select(
        "(SELECT 1) UNION ALL SELECT 2", HERE
    )


def test_places_in_the_sql_are_places_in_the_text() -> None:
    script = "SHOW QUERIES;\n  CREATE QUERY q AS SELECT\n    pric FROM bids"
    _, create = parse_script(script)
    assert isinstance(create, Create)
    assert isinstance(create.spec, QuerySpec)
    assert create.spec.at == Position(2, 16)
    # Of the first line of the SQL, and of the second.
    assert create.spec.position_in_file(Position(1, 8)) == Position(2, 28)
    assert create.spec.position_in_file(Position(2, 5)) == Position(3, 5)


def test_a_script_is_parted_by_semicolons_that_are_its_own() -> None:
    script = "-- first;\nSELECT ';' ; /* ; */ SHOW QUERIES;;\n; SELECT \"a;b\"; "
    assert [type(s) for s in parse_script(script)] == [Select, Show, Select]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", None, "0 statements"),
        ("SHOW QUERIES; SHOW VIEWS", None, "2 statements"),
        ("SELECT 'x", None, "not closed"),
        ("creat x", (1, 1), "did you mean CREATE?"),
        ("CREATE", (1, 7), "what to create is missing before the end"),
        ("CREATE STREM x", (1, 8), "did you mean STREAM?"),
        ("CREATE STREAM `a b` FROM x", (1, 15), "'a b' cannot be a name"),
        ("CREATE STREAM 'x' FROM y", (1, 15), "without quotes"),
        ("CREATE STREAM x", (1, 16), "FROM is missing before the end"),
        ("CREATE STREAM x FROM parquet", (1, 15), "has no time"),
        ("CREATE STREAM x FROM y WITH (time = 'ts', delay = 'soon')", (1, 43), "duration"),
        ("CREATE STREAM x FROM y WITH (time = 'ts', ttl = '0 s')", (1, 43), "ttl"),
        ("CREATE STREAM x FROM y WITH (time = 'ts', TIME = 'a')", (1, 43), "given twice"),
        ("CREATE TABLE x FROM y 'p' WITH (path = 'q')", (1, 14), "path is given twice"),
        ("CREATE TABLE x (a INT FROM y", (1, 16), "not closed"),
        ("CREATE TABLE x (a INT) FROM y WITH (schema = 'b INT')", (1, 14), "columns are given"),
        ("CREATE TABLE x FROM y WITH (a 1)", (1, 31), "= is missing"),
        ("CREATE TABLE x FROM y WITH (a = 1 b = 2)", (1, 35), ", is missing"),
        ("CREATE TABLE x FROM y 'p' 'q'", (1, 27), "nothing is expected here"),
        ("CREATE VIEW v SELECT 1", (1, 15), "AS is missing"),
        ("CREATE VIEW v AS", (1, 17), "is missing"),
        ("CREATE QUERY q WITH (format = 'parqet') AS SELECT 1", (1, 22), "'parquet'"),
        ("CREATE QUERY q WITH (format = 'parquet') AS SELECT 1", (1, 14), "needs a path"),
        ("CREATE QUERY q WITH (outputMode = complete) AS SELECT 1", (1, 22), "append, update"),
        ("DROP bids", (1, 6), "what to drop is missing"),
        ("DROP QUERY a b", (1, 14), "nothing is expected here"),
        ("SHOW QUERYS", (1, 6), "did you mean QUERIES?"),
        ("SHOW RESULTS q LIMIT many", (1, 22), "not a whole number"),
        ("EXPLAIN ANALYZE SELECT 1", (1, 17), "query that runs"),
        ("PAUSE", (1, 6), "the name of a query is missing"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(
    text: str, place: tuple[int, int] | None, words: str
) -> None:
    with pytest.raises(StatementError) as refused:
        parse_statement(text)
    error = refused.value
    assert error.condition == "INVALID_STATEMENT"
    assert words in str(error)
    assert "\n" not in str(error)
    assert error.position == (None if place is None else Position(*place))


def test_secrets_among_options_are_not_shown() -> None:
    spec = created("CREATE TABLE t FROM jdbc WITH (url = 'u', password = 'correct-horse')")
    assert isinstance(spec, TableSpec)
    assert spec.options["password"] == "correct-horse"
    assert "correct-horse" not in repr(spec)
    assert "correct-horse" not in str(StatementError("no correct-horse"))
