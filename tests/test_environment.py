"""Values from the environment in pipeline files: what they may be, and where errors point."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import redaction
from headrace.environment import substituted
from headrace.errors import Position
from headrace.pipeline import Pipeline, PipelineError, TriggerEntry, load_pipeline, parse_pipeline


@pytest.fixture(autouse=True)
def nothing_concealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_concealed", set())
    monkeypatch.setattr(redaction, "_pattern", None)


def pipeline(**values: str) -> str:
    """A pipeline file whose values are these, as they are written."""
    given = {"checkpoint": "state", "name": "q", "delay": "0 seconds", "sql": "SELECT * FROM s"}
    given |= {"more": "", "trigger": "availableNow", **values}
    return f"""\
checkpoint: {given["checkpoint"]}
trigger: {given["trigger"]}
streams:
- name: s
  format: json
  time: ts
  delay: {given["delay"]}
  options: {{more: "{given["more"]}"}}
queries:
- name: {given["name"]}
  sql: {given["sql"]}
"""


def read(text: str, **environment: str) -> Pipeline:
    return parse_pipeline(text, file="p.yaml", environment=environment)


def refused(text: str, **environment: str) -> PipelineError:
    with pytest.raises(PipelineError) as caught:
        read(text, **environment)
    assert "\n" not in str(caught.value)
    return caught.value


def place(error: PipelineError) -> tuple[int, int]:
    assert error.position is not None
    assert error.position.file == "p.yaml"
    return error.position.line, error.position.column


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "a b"),
        ("x${A}y${A}z", "xa bya bz"),
        ("${NONE:-rest}", "rest"),
        ("${EMPTY:-rest}", "rest"),
        ("${A:-rest}", "a b"),
        ("${NONE:-}x", "x"),
        ("${NONE:-a:b-c d}", "a:b-c d"),
        ("'${A}'", "a b"),
        ('"${A}"', "a b"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("'$1 $A $$ ${} ${1} ${a.b} ${env:A} ${A-b} ${A $'", None),
    ],
)
def test_values_are_put_in(written: str, value: str | None) -> None:
    found = read(pipeline(checkpoint=written), A="a b", EMPTY="").checkpoint
    assert found == (written.strip("'") if value is None else value)


def test_sql_keeps_its_dollar_signs() -> None:
    sql = "SELECT regexp_extract(k, '^(a|b$)$', 1), '$.a', '$$', '${' FROM s"
    assert read(pipeline(sql=f'"{sql}"')).queries[0].sql == sql


def test_keys_are_left_alone() -> None:
    text = pipeline().replace("options: {more", 'options: {"${A}": "1", more')
    assert read(text, A="b").streams[0].options == {"${A}": "1", "more": ""}


@pytest.mark.parametrize(
    "value",
    ["a: b", "- x", "{x: 1}", '"', "'", "# no comment", "a\nqueries: []\n", "&a", "*a", "!!int 3",
     "null", "true", "1.0", "2024-01-01", "${A}", "$${A}", "\t", "é\u2028"],
)  # fmt: skip
def test_a_value_is_text_and_never_yaml(value: str) -> None:
    for written in ("${A}", '"${A}"', "'${A}'", "|\n    ${A}", ">\n    ${A}"):
        found = read(pipeline(sql=written), A=f"x{value}").queries[0].sql
        assert found.rstrip("\n") == f"x{value}".rstrip("\n")
    assert read(pipeline(more="${A}"), A=value).streams[0].options == {"more": value}


def test_a_value_that_is_referred_to_twice_is_put_in_once() -> None:
    text = pipeline(sql="&it SELECT '$${A} ${A}' FROM s") + "- {name: r, sql: *it}\n"
    for query in read(text, A="$${A}").queries:
        assert query.sql == "SELECT '${A} $${A}' FROM s"


def test_typed_fields_read_their_values() -> None:
    text = pipeline(name="${Q}", delay="${D}", trigger="${T}", more="${N}")
    found = read(text, Q="hot", D="5 minutes", T="availableNow", N="7")
    assert found.queries[0].name == "hot"
    assert found.streams[0].delay == "5 minutes"
    assert found.streams[0].options == {"more": "7"}
    assert found.trigger == TriggerEntry()
    every = read(pipeline(trigger='{processingTime: "${EVERY:-3 seconds}"}'))
    assert every.trigger.processing_time == "3 seconds"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "no name!", "'***' cannot be a name"),
        ("delay", "five o'clock", "***"),
        ("trigger", "sometimes", "no trigger '***'"),
        ("checkpoint", "", "'checkpoint' is empty"),
    ],
)
def test_typed_fields_refuse_what_they_cannot_read(field: str, value: str, words: str) -> None:
    error = refused(pipeline(**{field: "${A}"}), A=value)
    assert words in str(error)
    assert value == "" or value not in str(error)
    assert place(error)[1] > 1


def test_names_are_shown_and_other_values_are_not() -> None:
    read(
        pipeline(name="${Q}", checkpoint="${C}", delay="${D}"), Q="query", C="/place", D="5 minutes"
    )
    assert redaction.redacted("query query in /place, 5 minutes") == "query query in ***, 5 minutes"


def test_defaults_are_shown() -> None:
    read(pipeline(checkpoint="${C:-/place}", more="${A:-more}"))
    assert redaction.redacted("/place more") == "/place more"


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("${NAME}", (1, 13)),
        ("a/b-${NAME}", (1, 17)),
        ("'it''s ${A}/${NAME}'", (1, 25)),
        ('"${A}\\t${NAME}"', (1, 20)),
        ('"\\x24{NAME}"', (1, 13)),
        ("|\n  one\n    ${A} ${NAME}", (3, 10)),
        (">\n  one\n\n  ${NAME}", (4, 3)),
        ("| # not ${A}\n  ${A} ${NAME}", (1, 13)),
    ],
)
def test_a_name_that_is_not_set(written: str, at: tuple[int, int]) -> None:
    error = refused(pipeline(checkpoint=written), A="a long value\nof two lines")
    assert error.message == "the environment has no NAME"
    assert "${NAME:-default}" in str(error.hint)
    assert "$${" in str(error.hint)
    assert place(error) == at


def test_a_default_that_names_another_value() -> None:
    error = refused(pipeline(checkpoint="x${A:-${B}}"), A="a", B="b")
    assert "a default cannot name another value" in error.message
    assert place(error) == (1, 14)


def test_braces_inside_braces() -> None:
    error = refused(pipeline().replace("{more: ", "{some: ${A}, more: "), A="a")
    assert "quote values with ${…}" in str(error.hint)
    assert place(error)[0] == 8


def test_the_environment_is_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_PLACE", "below")
    (tmp_path / "p.yaml").write_text(pipeline(checkpoint="${HEADRACE_TEST_PLACE}"))
    # A relative path is one whatever it was made from.
    assert load_pipeline(tmp_path / "p.yaml").checkpoint == str(tmp_path / "below")
    absolute = load_pipeline(tmp_path / "p.yaml", {"HEADRACE_TEST_PLACE": "/elsewhere"})
    assert absolute.checkpoint == "/elsewhere"


# Positions in SQL


def test_an_error_behind_a_value_of_several_lines() -> None:
    text = pipeline(sql="|\n    SELECT ${COLUMNS}, b\n    FROM s WHERE ${WHERE} AND c")
    (query,) = read(text, COLUMNS="a,\n  aa,\n\n  aaa", WHERE="x = 1").queries
    lines = query.sql.splitlines()
    found = {}
    for word in ("SELECT", "aaa", "b", "FROM", "c"):
        line = next(i for i, text in enumerate(lines) if word in text.replace(",", " ").split())
        inside = Position(line + 1, lines[line].index(word) + 1)
        place = query.position_in_file(inside)
        assert place.file == "p.yaml"
        found[word] = place.line, place.column
    rows = text.splitlines()
    first = next(i for i, row in enumerate(rows, 1) if "SELECT" in row)
    assert found == {
        "SELECT": (first, 5),
        # What is inside a value stands in the file where the value is named.
        "aaa": (first, 12),
        "b": (first, 24),
        "FROM": (first + 1, 5),
        "c": (first + 1, 31),
    }


WORDS = st.text(alphabet="ab \n", max_size=5)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=4), WORDS)
def test_every_written_sign_is_found_again(parts: list[tuple[str, str]], end: str) -> None:
    """Whatever values are put in between: signs and lines of the text lead back to the file's."""
    values = {f"V{i}": value for i, (_, value) in enumerate(parts)}
    written = "".join(f"{text}${{V{i}}}" for i, (text, _) in enumerate(parts)) + end
    done = substituted(written, values.get)
    expected: list[int] = []
    offset = 0
    for i, (text, value) in enumerate(parts):
        expected += range(offset, offset + len(text))
        offset += len(text)
        expected += [offset] * len(value)
        offset += len(f"${{V{i}}}")
    expected += range(offset, offset + len(end))
    assert done.text == "".join(text + value for text, value in parts) + end
    assert len(expected) == len(done.text)
    for place, source in enumerate(expected):
        before, origin = done.text[:place], written[:source]
        inside = Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        found = done.position_written(inside)
        at = (origin.count("\n") + 1, len(origin) - (origin.rfind("\n") + 1) + 1)
        assert (found.line, found.column) == at
