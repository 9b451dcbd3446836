"""What must not be shown is shown nowhere."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace import redaction
from headrace.cli.spark import _redacted_to
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.sinks.parquet import ParquetSink
from headrace.errors import HeadraceError, SinkError
from headrace.explain import Explanation, explain
from headrace.optimizer import optimize
from headrace.pipeline import parse_pipeline
from headrace.plan.dot import plan_dot
from headrace.plan.nodes import OutputMode, Sink
from headrace.plan.text import plan_text
from headrace.redaction import conceal, conceal_options, redacted, redacted_json
from headrace.sql import plan_query
from tests.conftest import SOURCES
from tests.sql.catalog import BIDS

SECRET = 's3cr3t "it\'s" C:\\x'


@pytest.fixture(autouse=True)
def nothing_concealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_concealed", set())
    monkeypatch.setattr(redaction, "_pattern", None)


@pytest.mark.parametrize(
    "quote",
    [
        "{}".format,
        repr,
        lambda value: "'" + value.replace("'", "''") + "'",
        lambda value: '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"',
    ],
)
def test_a_value_is_hidden_however_it_is_quoted(quote: object) -> None:
    assert callable(quote)
    text = f"no topic {quote(SECRET)} here"
    assert "s3cr3t" in redacted(text)
    conceal([SECRET])
    assert "s3cr3t" not in redacted(text)
    assert redacted(text).startswith("no topic ")
    assert redacted(text).endswith(" here")


def test_values_of_many_lines_are_hidden_line_by_line_and_in_one() -> None:
    conceal(["-----BEGIN-----\nMIIEvQ==\n"])
    assert redacted("bad key: MIIEvQ==") == "bad key: ***"
    assert redacted("bad key: -----BEGIN----- MIIEvQ==") == "bad key: ***"


def test_the_longest_value_is_hidden_as_a_whole() -> None:
    conceal(["abcd", "abcdefgh"])
    assert redacted("abcdefgh and abcd") == "*** and ***"


def test_short_values_and_words_are_no_secrets() -> None:
    conceal(["1", "ts", "true", "", "2024"])
    assert redacted("epoch 1: true, ts 12024-2024") == "epoch 1: true, ts 12024-***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3a://AKIA:abc/d+f@bucket/x", "s3a://AKIA:***@bucket/x"),
        ("s3a://AKIA:abc@bucket/x", "s3a://AKIA:***@bucket/x"),
        ("jdbc:postgresql://me:p@ss@db:5432/x", "jdbc:postgresql://me:***@db:5432/x"),
        ("jdbc:x://db/?user=me&password=p1&x=2", "jdbc:x://db/?user=me&password=***&x=2"),
        ('Module username="u" password="p q";', 'Module username="u" password=***;'),
        ("abfss://container@account/x", "abfss://container@account/x"),
        ("hdfs://host:8020/a@b", "hdfs://host:8020/a@b"),
        ("a = b and token = c", "a = b and token = c"),
        ("Server=db;Uid=me;Pwd=p1;", "Server=db;Uid=me;Pwd=***;"),
        ("AccountName=me;AccountKey=p1==;x", "AccountName=me;AccountKey=***;x"),
        ("https://h/a?sv=1&sig=p1%3D&se=2", "https://h/a?sv=1&sig=***&se=2"),
        ("https://h/a?X-Amz-Signature=p1&x=2", "https://h/a?X-Amz-Signature=***&x=2"),
        ("https://h/a?api_key=p1", "https://h/a?api_key=***"),
        ("sigma=3, design=4, key=5", "sigma=3, design=4, key=5"),
    ],
)
def test_passwords_are_hidden_whoever_wrote_them(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


def test_options_that_look_secret() -> None:
    conceal_options({"kafka.ssl.key.password": "hunter2", "key.format": "json", "sslKey": "x" * 9})
    assert redacted("hunter2, json, xxxxxxxxx") == "***, json, ***"


def test_json_keeps_its_keys() -> None:
    conceal(["orders"])
    assert redacted_json({"orders": ["orders", ("orders", 1)]}) == {"orders": ["***", ["***", 1]]}


def test_errors_say_nothing() -> None:
    conceal([SECRET])
    error = HeadraceError(f"no topic {SECRET}", hint=f"not {SECRET}")
    for text in (str(error), error.message, error.hint or "", repr(error)):
        assert "s3cr3t" not in text
        assert "***" in text


def test_an_error_of_sparks_is_redacted_before_it_is_cut_off() -> None:
    conceal(["abcdefghij" * 5])
    text = one_line(ValueError("x" * 280 + "abcdefghij" * 5))
    assert text == "x" * 280 + "***"


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    conceal([SECRET])
    logging.getLogger("headrace").warning("query %r: %s", SECRET, "x")
    assert [record.getMessage() for record in caplog.records] == ["query '***': x"]


def test_sinks_are_printed_without_what_is_secret() -> None:
    options = (("apiKey", "k"), ("password", "hunter2"), ("path", "/a"), ("url", "x://u:pw@h"))
    sink = Sink(BIDS, "q", "parquet", OutputMode.APPEND, options)
    for text in (repr(sink), plan_text(sink), plan_dot(sink)):
        assert "hunter2" not in text
        assert "pw@" not in text
        assert "/a" in text
        assert "'k'" not in text
    assert repr(sink) == repr(
        replace(sink, options=(*options[:1], ("password", "x"), *options[2:]))
    )


@pytest.mark.parametrize("mode", ["simple", "extended", "cost", "json", "dot"])
def test_explain(mode: str) -> None:
    value = "a long secret that is wider than any label of a picture, so that it would be wrapped"
    plan = plan_query(f"SELECT * FROM bids WHERE name = '{value}'", {"bids": BIDS}).plan
    query = Explanation(plan, optimize(plan))
    words = value.split()

    def shown() -> str:
        return re.sub(r'\s+|\\n|\\l|"', " ", explain(query, mode))

    assert all(word in shown() for word in words[:4])
    conceal([value])
    assert "***" in shown()
    assert not re.search(r"secret|wider|picture", shown())


def test_a_path_with_a_password_is_refused() -> None:
    sink = Sink(BIDS, "q", "parquet", OutputMode.APPEND)
    with pytest.raises(SinkError) as caught:
        ParquetSink(sink, {"path": "ftp://me:hunter2@host/out"})
    assert "hunter2" not in str(caught.value)
    assert "has a password in it: ftp://me:***@host/out" in str(caught.value)


def test_pipelines_print_themselves_without_secrets() -> None:
    text = """\
checkpoint: ${PLACE}/state
settings: {spark.hadoop.fs.s3a.secret.key: literal-key}
streams:
- {name: s, format: kafka, time: timestamp, options: {kafka.password: "${PASSWORD}", a: b}}
queries:
- {name: q, sql: "SELECT '${TENANT}' FROM s"}
"""
    values = {"PLACE": "/data/7", "PASSWORD": "hunter2", "TENANT": "acme"}
    pipeline = parse_pipeline(text, environment=values)
    assert pipeline.checkpoint == "/data/7/state"
    assert pipeline.streams[0].options == {"kafka.password": "hunter2", "a": "b"}
    assert pipeline.queries[0].sql == "SELECT 'acme' FROM s"
    for shown in (repr(pipeline), repr(pipeline.streams[0]), str(pipeline.queries[0])):
        assert not re.search("data|hunter2|acme|literal-key", shown)
        assert "***" in shown
    assert "'a': 'b'" in repr(pipeline.streams[0])
    assert redacted("literal-key of acme") == "*** of ***"


def test_sparks_log() -> None:
    conceal(["hunter2"])
    reader, target = os.pipe()
    writer = _redacted_to(target)
    os.write(writer, b"first hun")
    os.write(writer, b"ter2\nlast hunter2")
    os.close(writer)
    with open(reader) as lines:
        assert lines.read() == "first ***\nlast ***"


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_the_command_line(tmp_path: Path, debug: list[str]) -> None:
    """A traceback, too, with the errors that led to it."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "checkpoint: state\nstreams: [{name: s, format: json, time: ts, schema: ts TIMESTAMP}]\n"
        "queries: [{name: q, sql: 'SELECT ${COLUMN} FROM s'}]\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "merge", str(file), *debug],
        env={**os.environ, "COLUMN": "hunter2 +", "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 1, ran.stderr
    assert "hunter2" not in ran.stdout + ran.stderr
    assert ("Traceback" in ran.stderr) == bool(debug)
