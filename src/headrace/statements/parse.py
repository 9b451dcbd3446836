"""From text to statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot.tokenizer_core import TokenType

from headrace.errors import DurationError, Position
from headrace.names import query_name_advice, relation_name_advice
from headrace.pipeline import (
    OUTPUT_MODES,
    SINK_FORMATS,
    QuerySpec,
    SinkSpec,
    StreamSpec,
    TableSpec,
    ViewSpec,
)
from headrace.plan.durations import parse_duration, positive_duration
from headrace.redaction import conceal_options
from headrace.statements.statement import (
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
    Statement,
    StatementError,
)
from headrace.statements.words import Words, split

_KINDS = {kind.value.upper(): kind.value for kind in Kind}
_PLURALS = {kind.plural.upper(): kind.value for kind in Kind}
_BEGINNINGS = (
    "CREATE",
    "INSERT",
    "DROP",
    "PAUSE",
    "RESUME",
    "SHOW",
    "DESCRIBE",
    "EXPLAIN",
    "SELECT",
)
#: How many rows SHOW RESULTS gives where nobody says.
_ROWS = 20
_EXAMPLES = {
    Kind.STREAM: "CREATE STREAM name FROM format WITH (time = 'column', …)",
    Kind.TABLE: "CREATE TABLE name FROM format WITH (path = '…')",
    Kind.VIEW: "CREATE VIEW name AS SELECT …",
    Kind.QUERY: "CREATE QUERY name [WITH (format = 'parquet', path = '…')] AS SELECT …",
}


def parse_statement(text: str) -> Statement:
    """The one statement of a text.

    >>> parse_statement("PAUSE QUERY hot").name
    'hot'
    """
    statements = parse_script(text)
    if len(statements) != 1:
        raise StatementError(
            f"the text holds {len(statements)} statements, not one", hint="send each by itself"
        )
    return statements[0]


def parse_script(text: str, file: str | None = None) -> list[Statement]:
    """All statements of a text, which semicolons part."""
    return [_statement(words) for words in split(text, file)]


def _statement(words: Words) -> Statement:
    at = words.at
    for word, parse in _PARSERS.items():
        if words.is_next(word):
            if parse is not _select:
                words.take(word)
            statement = parse(words, at)
            words.end()
            return statement
    near = get_close_matches(words.shown(quoted=False).upper(), _BEGINNINGS, 1)
    hint = f"did you mean {near[0]}?" if near else f"begin with {', '.join(_BEGINNINGS)}"
    words.refuse(f"no statement begins with {words.shown()}", hint)


# --- CREATE and INSERT ----------------------------------------------------------------------------


def _create(words: Words, at: Position) -> Statement:
    kind = Kind(words.one_of(_KINDS, "what to create"))
    unless_there = words.take("IF", "NOT", "EXISTS")
    name_at = words.at
    advice = query_name_advice if kind is Kind.QUERY else relation_name_advice
    name = words.name(kind.value, advice)
    match kind:
        case Kind.STREAM | Kind.TABLE:
            return Create(_relation(words, kind, name, name_at), unless_there)
        case Kind.VIEW:
            words.expect("AS", _EXAMPLES[kind])
            sql, sql_at = words.rest("the SELECT of the view")
            spec = ViewSpec(name, sql, name_at, sql_at, False, sql_in_line=True)
            return Create(spec, unless_there)
        case Kind.QUERY:
            options = _options(words) if words.take("WITH") else _Options({})
            words.expect("AS", _EXAMPLES[kind])
            return _query(words, name, name_at, options, unless_there)


def _insert(words: Words, at: Position) -> Statement:
    words.expect("INTO", "INSERT INTO name SELECT …")
    name_at = words.at
    name = words.name("query", query_name_advice)
    options = _Options({})
    if words.is_next("WITH") and not _is_common_table(words):
        words.take("WITH")
        options = _options(words)
    return _query(words, name, name_at, options, False)


def _is_common_table(words: Words) -> bool:
    """Whether WITH begins the query itself: WITH name AS (…)."""
    after = words.tokens[words.place + 1 : words.place + 2]
    return not after or after[0].token_type != TokenType.L_PAREN


def _query(
    words: Words, name: str, at: Position, options: _Options, unless_there: bool
) -> Statement:
    sink_format = options.choice("format", SINK_FORMATS) or "results"
    mode = options.choice("outputMode", OUTPUT_MODES)
    path, tags = options.take("path"), options.take("tags")
    if sink_format == "parquet" and path is None:
        words.refuse("a parquet sink needs a path", "add path = '…'", at)
    sink = SinkSpec(sink_format, path, options.others())
    sql, sql_at = words.rest("the SELECT of the query")
    spec = QuerySpec(name, sql, mode, sink, at, sql_at, False, sql_in_line=True)
    labels = tuple(filter(None, (tag.strip() for tag in (tags or "").split(","))))
    return Create(spec, unless_there, labels)


def _relation(words: Words, kind: Kind, name: str, at: Position) -> StreamSpec | TableSpec:
    token = words.next
    schema = None
    if token is not None and token.token_type == TokenType.L_PAREN:
        schema = words.in_parentheses() or None
    words.expect("FROM", _EXAMPLES[kind])
    reader = words.word("a format such as parquet or kafka").lower()
    path = words.string()
    options = _options(words) if words.take("WITH") else _Options({})
    given, described = options.take("path"), options.take("schema")
    if path is not None and given is not None:
        words.refuse("the path is given twice", "leave one of them out", at)
    if schema is not None and described is not None:
        words.refuse("the columns are given twice", "leave the option 'schema' out", at)
    path, schema = path or given, schema or described
    if kind is Kind.TABLE:
        return TableSpec(name, reader, path, schema, options.others(), at)
    time = options.take("time")
    if time is None:
        words.refuse(
            f"the stream {name!r} has no time",
            "add WITH (time = 'column'), or time = 'processing' for the time of arrival",
            at,
        )
    return StreamSpec(
        name,
        reader,
        path,
        schema,
        time=time,
        delay=options.duration("delay", parse_duration),
        ttl=options.duration("ttl", lambda text: positive_duration(text, "ttl")),
        idle=options.duration("idle", lambda text: positive_duration(text, "idle")),
        options=options.others(),
        at=at,
    )


# --- WITH (…) ------------------------------------------------------------------------------------


@dataclass
class _Options:
    """What stands in WITH (…), each with its place; read once, what is left is for Spark."""

    given: dict[str, tuple[str, Position]]

    def take(self, key: str) -> str | None:
        value = self._take(key)
        return None if value is None else value[0]

    def _take(self, key: str) -> tuple[str, Position] | None:
        known = next((k for k in self.given if k.lower() == key.lower()), None)
        return None if known is None else self.given.pop(known)

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self._take(key)
        if value is None or value[0] in choices:
            return None if value is None else value[0]
        near = get_close_matches(value[0], choices, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(choices)}"
        raise StatementError(f"no {key} {value[0]!r}", hint=hint, position=value[1])

    def duration(self, key: str, read: Callable[[str], int]) -> str | None:
        value = self._take(key)
        if value is None:
            return None
        try:
            if read(value[0]) < 0:
                raise DurationError(f"{key} must not be negative, but is {value[0]!r}")
        except DurationError as error:
            raise StatementError(error.message, hint=error.hint, position=value[1]) from None
        return value[0]

    def others(self) -> dict[str, str]:
        options = {key: value for key, (value, _) in self.given.items()}
        conceal_options(options)
        return options


def _options(words: Words) -> _Options:
    """The keys and values in parentheses behind WITH."""
    words.expect("(", "WITH (key = 'value', …)")
    options = _Options({})
    while not words.take(")"):
        if options.given:
            words.expect(",", "WITH (key = 'value', …)")
        at = words.at
        key = _key(words)
        if any(key.lower() == known.lower() for known in options.given):
            words.refuse(f"{key!r} is given twice", "leave one of them out", at)
        words.expect("=", f"{key} = 'value'")
        options.given[key] = (_value(words), at)
    return options


def _key(words: Words) -> str:
    """A key, in quotes or as words with dots between."""
    quoted = words.string()
    if quoted is not None:
        return quoted
    key = words.word("the key of an option")
    while words.take("."):
        key += f".{words.word('the key of an option')}"
    return key


def _value(words: Words) -> str:
    """A text, a number, a truth value or a word, as Spark takes options: as text."""
    text = words.string()
    if text is not None:
        return text
    sign = "-" if words.take("-") else ""
    token = words.next
    if token is not None and token.token_type == TokenType.NUMBER:
        words.place += 1
        return f"{sign}{token.text}"
    word = words.word("the value of an option")
    return word.lower() if word.lower() in ("true", "false") else word


# --- everything else -----------------------------------------------------------------------------


def _drop(words: Words, at: Position) -> Statement:
    kind = Kind(words.one_of(_KINDS, "what to drop"))
    if_exists = words.take("IF", "EXISTS")
    name_at = words.at
    return Drop(kind, words.name(kind.value, query_name_advice), if_exists, name_at)


def _pause(words: Words, at: Position) -> Statement:
    words.take("QUERY")
    name_at = words.at
    return Pause(words.name("query", query_name_advice), name_at)


def _resume(words: Words, at: Position) -> Statement:
    words.take("QUERY")
    name_at = words.at
    name = words.name("query", query_name_advice)
    return Resume(name, words.take("FROM", "NOW"), name_at)


def _show(words: Words, at: Position) -> Statement:
    if words.take("RESULTS"):
        words.take("OF")
        name_at = words.at
        name = words.name("query", query_name_advice)
        return ShowResults(name, words.number() if words.take("LIMIT") else _ROWS, name_at)
    return Show(Kind(words.one_of({**_PLURALS, "RESULTS": ""}, "what to show")))


def _describe(words: Words, at: Position) -> Statement:
    kind = next((kind for word, kind in _KINDS.items() if words.take(word)), None)
    name_at = words.at
    name = words.name(kind or "stream, table, view or query", query_name_advice)
    return Describe(None if kind is None else Kind(kind), name, name_at)


def _explain(words: Words, at: Position) -> Statement:
    modes = {mode.value.upper(): mode for mode in ExplainMode}
    mode = next((m for word, m in modes.items() if words.take(word)), ExplainMode.SIMPLE)
    if words.is_next("SELECT") or words.is_next("WITH") or words.is_next("("):
        if mode is ExplainMode.ANALYZE:
            words.refuse(
                "EXPLAIN ANALYZE is about a query that runs",
                "create it first, then EXPLAIN ANALYZE name",
            )
        sql, sql_at = words.rest("a query")
        return Explain(mode, None, sql, sql_at)
    words.take("QUERY")
    name_at = words.at
    return Explain(mode, words.name("query", query_name_advice), None, name_at)


def _select(words: Words, at: Position) -> Statement:
    sql, sql_at = words.rest("a query")
    return Select(sql, sql_at)


_PARSERS: dict[str, Callable[[Words, Position], Statement]] = {
    "CREATE": _create,
    "INSERT": _insert,
    "DROP": _drop,
    "PAUSE": _pause,
    "RESUME": _resume,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "SELECT": _select,
    "WITH": _select,
    "(": _select,
}
