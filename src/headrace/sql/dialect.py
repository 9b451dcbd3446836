"""How SQL text is read: sqlglot's Spark grammar, with functions left alone and places remembered.

sqlglot maps functions of all dialects onto its own classes; what comes back out is not always what
Spark was asked. Here a function call stays a call of that name (``exp.Anonymous``), so the plan
holds what the user wrote. Every clause remembers the token it began at, so a refusal can point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headrace.errors import Position, SqlError
from headrace.sql.positions import mark_positions
from headrace.sql.refusals import refusal, refuse
from headrace.sql.words import mark_left_over, move_left_over, refuse_left_over

#: Marks ``DATE 'x'`` and its like.
TYPED_LITERAL = "headrace_typed_literal"
# Functions whose arguments have a syntax of their own; all others are parsed as plain calls.
_WITH_OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "TRIM", "OVERLAY", "SUBSTRING")


def _beginning_at_its_token(parse: Callable[..., Any]) -> Callable[..., Any]:
    """The parse method, with what it returns marked with the token it started at."""

    def parse_and_mark(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = self._curr
        result = parse(self, *args, **kwargs)
        node = result[1] if isinstance(result, tuple) else result
        if token is not None and isinstance(node, exp.Expr) and "start" not in node.meta:
            node.update_positions(token)
        return result

    return parse_and_mark


def _hint_without_places(parser: SparkParser) -> exp.Hint | None:
    """A hint; it is parsed as a text of its own, so its parts know no places in the query."""
    hint = SparkParser._parse_hint(parser)
    for part in hint.walk() if hint is not None else ():
        part.meta.pop("start", None)
    return hint


class HeadraceParser(SparkParser):
    """Spark's grammar without sqlglot's knowledge of functions."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _WITH_OWN_SYNTAX
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"],
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        token: _beginning_at_its_token(parse)
        for token, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
    }
    # CAST is CAST: sqlglot would read it as TRY_CAST, as Hive means it.
    STRICT_CAST = True

    def expression(
        self, instance: Any, token: Token | None = None, comments: list[str] | None = None
    ) -> Any:
        if isinstance(instance, exp.Distinct) and token is None:
            token = self._prev
        return super().expression(instance, token, comments)

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        typed = self._curr is not None and self._curr.token_type in self.TYPE_TOKENS
        text = typed and self._next is not None and self._next.token_type == TokenType.STRING
        node = super()._parse_type(parse_interval, fallback_to_identifier)
        if text and isinstance(node, exp.Cast):
            # DATE 'x' is a constant or a mistake, CAST('x' AS DATE) may fail when it runs.
            node.meta[TYPED_LITERAL] = True
        return node

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query | None:
        self.raise_error("Pipes are not supported")
        return None

    def _warn_unsupported(self) -> None:
        """Statements that sqlglot does not know are refused anyway, so it need not log them."""

    _parse_select = _beginning_at_its_token(SparkParser._parse_select)
    _parse_join = _beginning_at_its_token(SparkParser._parse_join)
    _parse_lateral = _beginning_at_its_token(SparkParser._parse_lateral)
    _parse_pivot = _beginning_at_its_token(SparkParser._parse_pivot)
    _parse_table = _beginning_at_its_token(SparkParser._parse_table)
    _parse_statement = _beginning_at_its_token(SparkParser._parse_statement)
    _parse_expression = _beginning_at_its_token(SparkParser._parse_expression)
    _parse_assignment = _beginning_at_its_token(SparkParser._parse_assignment)
    _parse_disjunction = _beginning_at_its_token(SparkParser._parse_disjunction)
    _parse_unary = _beginning_at_its_token(SparkParser._parse_unary)
    _parse_primary = _beginning_at_its_token(SparkParser._parse_primary)
    _parse_interval = _beginning_at_its_token(SparkParser._parse_interval)
    _parse_hint = _beginning_at_its_token(_hint_without_places)
    _parse_function_call = _beginning_at_its_token(SparkParser._parse_function_call)
    _parse_with = _beginning_at_its_token(SparkParser._parse_with)
    _parse_version = _beginning_at_its_token(SparkParser._parse_version)
    _parse_historical_data = _beginning_at_its_token(SparkParser._parse_historical_data)
    _parse_changes = _beginning_at_its_token(SparkParser._parse_changes)
    _parse_cte = _beginning_at_its_token(SparkParser._parse_cte)
    _parse_types = _beginning_at_its_token(SparkParser._parse_types)
    _parse_table_sample = _beginning_at_its_token(SparkParser._parse_table_sample)
    _parse_cube_or_rollup = _beginning_at_its_token(SparkParser._parse_cube_or_rollup)
    _parse_grouping_sets = _beginning_at_its_token(SparkParser._parse_grouping_sets)
    parse_set_operation = _beginning_at_its_token(SparkParser.parse_set_operation)


class HeadraceDialect(Spark):
    """Spark SQL as Headrace reads it."""

    class Tokenizer(Spark.Tokenizer):
        # `window` is a function and a column here far more often than a clause (OVER is refused
        # anyway), and as a keyword it would end a GROUP BY that begins with it.
        # A doubled quote is a quote: 'it''s'.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"
        }

    Parser = HeadraceParser


def parse_query(text: object) -> exp.Expr:
    """One statement, each node marked with its place in the text."""
    if not isinstance(text, str):
        reason = f"it is {type(text).__name__}, not a string"
        refuse("SYNTAX_ERROR", None, near="", reason=reason, advice="write a SELECT as a string")
    return _parse(text)


def parse_expression(text: str) -> exp.Expr:
    """A single expression, as the builder's methods take it, with or without an alias."""
    query = _parse(f"SELECT {text}", shift=len("SELECT "))
    only = query.args.get("expressions") or []
    if not isinstance(query, exp.Select) or len(only) != 1 or len(_filled(query)) != 1:
        refuse(
            "SYNTAX_ERROR",
            None,
            near="",
            reason=f"{text!r} is not one expression",
            advice="pass several expressions as several arguments",
        )
    expression: exp.Expr = only[0]
    expression.pop()
    move_left_over(query, expression)
    return expression


def parse_data_type(text: str) -> exp.DataType:
    """A type by its name in Spark."""
    dialect = HeadraceDialect()
    try:
        tokens = dialect.tokenize(text)
        (kind, *_) = dialect.parser().parse_into(exp.DataType, tokens, text)
    except (ParseError, TokenError):
        kind = None
    if isinstance(kind, exp.DataType):
        mark_left_over(kind, tokens, text)
        refuse_left_over(kind)
    else:
        refuse(
            "SYNTAX_ERROR",
            None,
            near="",
            reason=f"{text!r} is not a type",
            advice="use a name such as 'bigint' or 'decimal(10,2)'",
        )
    return kind


def _filled(query: exp.Expr) -> list[str]:
    return [key for key, value in query.args.items() if value]


def _parse(text: str, shift: int = 0) -> exp.Expr:
    dialect = HeadraceDialect()
    try:
        tokens = dialect.tokenize(text)
        statements = [s for s in dialect.parser().parse(tokens, text) if s is not None]
    except ParseError as error:
        raise _syntax_error(error, shift) from None
    except TokenError as error:
        reason = str(error).splitlines()[0]
        advice = "look for a quote or a comment that is not closed"
        refuse("SYNTAX_ERROR", None, near="", reason=reason, advice=advice)
    if not statements:
        refuse("SYNTAX_ERROR", None, near="", reason="it is empty", advice="write a SELECT")
    for statement in statements:
        mark_positions(statement, text, shift)
    if len(statements) > 1:
        refuse("SEVERAL_STATEMENTS", statements[1], count=len(statements))
    mark_left_over(statements[0], tokens, text, shift)
    _refuse_empty_lists(statements[0])
    return statements[0]


def _refuse_empty_lists(statement: exp.Expr) -> None:
    """sqlglot reads a SELECT of nothing; Spark has none."""
    for select in statement.find_all(exp.Select):
        if not select.expressions:
            reason, advice = "something is missing after it", "name columns, or write SELECT *"
            refuse("SYNTAX_ERROR", select, near=" near 'SELECT'", reason=reason, advice=advice)


def _syntax_error(error: ParseError, shift: int) -> SqlError:
    first = error.errors[0] if error.errors else {}
    line, end, shown = first.get("line"), first.get("col"), str(first.get("highlight") or "")
    reason = str(first.get("description") or error).rstrip(".")
    if reason.startswith("Required keyword") or "TokenType.SENTINEL" in reason:
        reason = "something is missing after it"
    position = None
    if isinstance(line, int) and isinstance(end, int):
        # sqlglot gives the column of the token's last character.
        column = max(1, end - max(len(shown) - 1, 0))
        position = Position(line, column - (shift if line == 1 else 0))
    return refusal(
        "SYNTAX_ERROR",
        position,
        near=f" near {shown!r}" if shown else "",
        reason=reason[:1].lower() + reason[1:],
        advice="Spark SQL is understood, with the forms that standing queries have",
    )
