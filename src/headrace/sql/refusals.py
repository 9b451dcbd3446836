"""What is refused: the list itself, with the reason and what to write instead.

Nothing is silently approximated: SQL that has no exact meaning over streams is refused when it is
registered. Each entry is a stable condition name; ``what`` and ``hint`` are templates. The tests
walk through this list with an example for each entry, and the SQL reference prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from sqlglot import exp

from headrace.errors import Position, SqlError
from headrace.sql.positions import position_of


@dataclass(frozen=True)
class Refusal:
    """One thing that a standing query cannot have."""

    name: str
    what: str
    hint: str


REFUSALS: tuple[Refusal, ...] = (
    # Reading the text
    Refusal("SYNTAX_ERROR", "the SQL cannot be read{near}: {reason}", "{advice}"),
    Refusal(
        "SEVERAL_STATEMENTS", "the text holds {count} statements", "register each query by itself"
    ),
    Refusal(
        "NOT_A_QUERY",
        "{statement} is not a standing query",
        "write a SELECT; register streams, tables and views with stream(), table() and view(), and "
        "write results with writeStream",
    ),
    Refusal(
        "NOT_UNDERSTOOD", "{what_it_is} is not understood here, and would be ignored", "{advice}"
    ),
    Refusal(
        "UNKNOWN_HINT",
        "unknown hint {hint_name}",
        "the hints are JOIN_ORDER(a, b, …), EARLY_AGGREGATION(a, …) and LATE_AGGREGATION",
    ),
    Refusal(
        "INVALID_EARLY_AGGREGATION",
        "EARLY_AGGREGATION names {given}, but the query joins {joined}",
        "name inputs of the join by their aliases; none of them is EARLY_AGGREGATION()",
    ),
    Refusal(
        "NOTHING_AGGREGATED",
        "the hint is about an aggregate, and the query has none",
        "write the hint after the SELECT that has the GROUP BY, or leave it out",
    ),
    Refusal(
        "IMPOSSIBLE_EARLY_AGGREGATION",
        "the hint EARLY_AGGREGATION cannot be followed: {reason}",
        "leave the hint out; explain() shows which inputs are aggregated early",
    ),
    Refusal(
        "INVALID_JOIN_ORDER",
        "JOIN_ORDER names {given}, but the query joins {joined}",
        "name each joined relation once, by its alias",
    ),
    Refusal(
        "IMPOSSIBLE_JOIN_ORDER",
        "the joins cannot run in the order of the hint: {reason}",
        "leave the hint out; explain() lists the valid orders",
    ),
    Refusal(
        "FIXED_JOIN_ORDER",
        "the joins of {names} cannot change places: sessions, and windows that a join hands on, "
        "depend on what is joined before",
        "leave the hint out; explain() says which joins stay where they are, and why",
    ),
    # Clauses that need all rows before the first result
    Refusal(
        "DISTINCT",
        "SELECT DISTINCT over a stream would keep every row for ever",
        "group by the columns and a window: GROUP BY {columns}, window({time}, '1 hour')",
    ),
    Refusal(
        "ORDER_BY",
        "{clause} over a stream has no end at which to sort",
        "sort the results where they are read",
    ),
    Refusal(
        "LIMIT", "{clause} over a stream has no first rows", "limit the results where they are read"
    ),
    Refusal(
        "QUALIFY",
        "QUALIFY filters window functions, which are refused",
        "aggregate per time window in a derived table and filter that",
    ),
    Refusal(
        "OVER",
        "the window function {function}() OVER (…) orders rows, and a stream has no last row",
        "use GROUP BY with window(…), session_window(…) or trailing(…)",
    ),
    Refusal(
        "UNSUPPORTED_CLAUSE",
        "{clause} has no meaning for a standing query",
        "leave it out",
    ),
    Refusal("TABLESAMPLE", "TABLESAMPLE differs at every replay", "filter on a hash of a key"),
    Refusal(
        "LATERAL",
        "{what_it_is} makes several rows of one, which is not supported",
        "explode in the DataFrame before it is registered as a stream",
    ),
    Refusal("PIVOT", "{clause} is not supported", "use aggregates with FILTER (WHERE …)"),
    # Set operations and subqueries
    Refusal(
        "SET_OPERATION",
        "{operation} compares all rows of both sides, which a stream never has",
        "{advice}",
    ),
    Refusal(
        "UNION_MISMATCH",
        "UNION ALL of {left} and {right}",
        "select the same number of columns with the same types on each side, with CAST if needed",
    ),
    Refusal(
        "UNION_BY_NAME",
        "UNION ALL BY NAME is not supported",
        "select the same columns in the same order on each side, and write UNION ALL",
    ),
    Refusal(
        "UNION_WITHOUT_STREAM",
        "a part of the UNION ALL reads no stream, only {tables}",
        "put these rows into the DataFrame of a stream, or join the table with a stream",
    ),
    Refusal(
        "NO_OUTPUT_MODE",
        "a landmark is written in update mode, and sessions cannot be, because they merge",
        "register the parts of the UNION ALL as queries of their own",
    ),
    Refusal("SUBQUERY", "{kind} subquery is not supported", "write it as a JOIN"),
    Refusal("RECURSIVE", "a recursive WITH is not supported", "write the steps as joins"),
    Refusal(
        "VIEW_CYCLE",
        "the view {name} would read itself{through}",
        "a view reads streams, tables, and views that do not read it",
    ),
    Refusal(
        "VALUES", "{kind} as a relation is not supported", "register it as a table with table()"
    ),
    Refusal("LAMBDA", "functions with a lambda (x -> …) are not supported", "{advice}"),
    Refusal("PARAMETER", "parameter {marker} has no value", "put the value into the text"),
    # Names
    Refusal("UNKNOWN_RELATION", "no stream, table or view {name!r}", "{advice}"),
    Refusal("UNKNOWN_COLUMN", "no column {name!r}", "{advice}"),
    Refusal("UNKNOWN_FUNCTION", "no function {name}()", "{advice}"),
    Refusal("UNKNOWN_FIELD", "{of} has no field {name!r}", "{advice}"),
    Refusal(
        "AMBIGUOUS_COLUMN", "{name!r} is a column of {relations}", "write {example} to say which"
    ),
    Refusal(
        "DUPLICATE_ALIAS", "two relations are named {name!r}", "give each its own alias with AS"
    ),
    Refusal(
        "DUPLICATE_COLUMN",
        "two columns of the result are named {name!r}",
        "give each its own name with AS",
    ),
    Refusal(
        "COLUMN_COUNT",
        "{alias} names {given} columns, but the query has {columns}",
        "name each column once",
    ),
    # Types and functions
    Refusal("TYPE_MISMATCH", "{what_it_is}", "{advice}"),
    Refusal("ARGUMENT_COUNT", "{name}() takes {expected}, not {given}", "see Spark's reference"),
    Refusal(
        "NOT_A_CONDITION",
        "{clause} needs a condition, but this is {type}",
        "compare it with a value",
    ),
    Refusal(
        "NONDETERMINISTIC",
        "{name} gives another value at each run, so a replay would not repeat the results",
        "{advice}",
    ),
    Refusal(
        "ORDER_DEPENDENT",
        "{name}() depends on the order in which rows arrive",
        "use {advice}, which says by what to order",
    ),
    Refusal(
        "UNSUPPORTED_EXPRESSION", "{what_it_is} is not supported in a standing query", "{advice}"
    ),
    # Aggregation
    Refusal(
        "GROUP_BY_WITHOUT_WINDOW",
        "an aggregate over a stream needs a window, or it would never be final",
        "add window({time}, '10 minutes') to the GROUP BY, or landmark({time}) for totals so far",
    ),
    Refusal(
        "AGGREGATE_OF_TABLE",
        "an aggregate of {tables} alone would be computed once, not as streams go on",
        "aggregate it with Spark, and register the result with table()",
    ),
    Refusal(
        "GROUPING_SETS",
        "{clause} is not supported",
        "write one query per grouping and join them with UNION ALL",
    ),
    Refusal(
        "SEVERAL_WINDOWS",
        "the GROUP BY has {count} windows",
        "to compute several at once write windows(window(…), window(…)); a join without a "
        "condition on time may have trailing(…), landmark(…) or a tumbling window(…) of each of "
        "its streams",
    ),
    Refusal(
        "WINDOWS_OF_INPUTS",
        "windows of each input of a join cannot be computed here: {reason}",
        "use count, sum, avg, stddev, min, max and others that need no rows, or give the join a "
        "condition on time and group by one window",
    ),
    Refusal(
        "INPUT_WITHOUT_WINDOW",
        "some streams of the join have a window in the GROUP BY, but {input} has none",
        "add trailing({time}, '1 hour') for the last hour of it, or landmark({time}) for all of it",
    ),
    Refusal(
        "INVALID_WINDOWS",
        "windows(…) takes tumbling and hopping windows of one time column: {reason}",
        "write windows(window({time}, '20 minutes'), window({time}, '1 hour', '10 minutes'))",
    ),
    Refusal(
        "WINDOW_OUTSIDE_GROUP_BY",
        "{name}(…) stands outside GROUP BY and join conditions",
        "put it into the GROUP BY; the SELECT then names it {column}",
    ),
    Refusal("NO_WINDOW_COLUMN", "there is no column {name!r}: {reason}", "{advice}"),
    Refusal(
        "NOT_A_TIME", "{name}(…) needs an event-time column, but {column} is {type}", "{advice}"
    ),
    Refusal(
        "NOT_EVENT_TIME",
        "{column} is not an event time here, so its windows could never be closed{reason}",
        "{advice}",
    ),
    Refusal(
        "NULLABLE_TIME",
        "{column} is NULL in the unmatched rows of the outer join, so they would belong to no "
        "window",
        "use the time of the side that the join keeps",
    ),
    Refusal(
        "NO_EVENT_TIME",
        "{what_it_is} hands on no event time, so windows above it could never be closed",
        "{advice}",
    ),
    Refusal(
        "CHANGING_INPUT",
        "a {window} window is given out again with each micro-batch, so {what_it_is} over it would "
        "count rows again",
        "compute it from the stream itself, or use window(…)",
    ),
    Refusal(
        "NESTED_AGGREGATE",
        "{outer}() holds the aggregate {inner}()",
        "compute {inner}() in a derived table first",
    ),
    Refusal(
        "MISSING_FROM_GROUP_BY",
        "{column} is neither grouped by nor in an aggregate",
        "add it to the GROUP BY, or use max({column})",
    ),
    Refusal(
        "AGGREGATE_IN_WHERE",
        "{clause} holds the aggregate {name}()",
        "{advice}",
    ),
    Refusal(
        "HAVING_WITHOUT_GROUP_BY", "HAVING needs a GROUP BY with a window", "use WHERE for rows"
    ),
    Refusal(
        "GROUP_BY_POSITION",
        "GROUP BY {position} names no column of the SELECT",
        "use a number from 1 to {count}, or the expression itself",
    ),
    # Joins
    Refusal(
        "CROSS_JOIN",
        "nothing joins these inputs, and a cross join of streams never ends",
        "write JOIN … ON with equal keys and a time condition, or say them in the WHERE",
    ),
    Refusal(
        "NATURAL_JOIN",
        "the sides of the NATURAL JOIN have no column name in common",
        "write JOIN … ON, with equal keys",
    ),
    Refusal(
        "SEMI_JOIN",
        "{kind} join is not supported",
        "{advice}",
    ),
    Refusal(
        "JOIN_WITHOUT_KEY",
        "the join has neither equal keys nor a bound on time, so nothing could ever be forgotten",
        "add a.key = b.key, or b.{time} BETWEEN a.{time} - INTERVAL … AND a.{time} + INTERVAL …",
    ),
    Refusal(
        "JOIN_WITHOUT_EVENT_TIME",
        "{input} has no event time when it is joined, so its rows could never be forgotten",
        "select the stream's time column in the derived table, or window, whose time is "
        "window_time(window)",
    ),
    Refusal(
        "WINDOW_MISMATCH",
        "the two sides have different windows: {left} and {right}",
        "write the same length, slide and offset on both sides",
    ),
    Refusal(
        "JOIN_SIDES",
        "{what_it_is} must name one time column of each side of the join",
        "write {example}",
    ),
    Refusal(
        "EMPTY_INTERVAL",
        "the join's time bounds contradict each other: from {lower} to {upper}",
        "the lower bound must not exceed the upper bound",
    ),
    Refusal(
        "OUTER_JOIN_UNBOUNDED",
        "a {kind} outer join keeps {side} rows until no partner can come, and this one has no "
        "{bound} bound on time",
        "add one: {example}",
    ),
    Refusal(
        "OUTER_JOIN_WITHOUT_TIME",
        "a {kind} outer join of streams without a time condition never knows that a partner is "
        "missing",
        "add window(a.{time}, …) = window(b.{time}, …), or a BETWEEN on times",
    ),
    Refusal(
        "OUTER_SESSION_JOIN",
        "a {kind} outer join on sessions is not supported",
        "use an inner join, or a bound on time",
    ),
    Refusal(
        "OUTER_JOIN_OF_TABLE",
        "a {kind} outer join would keep rows of the table, and a stream never says which have no "
        "partner",
        "keep the stream's side only: {example}",
    ),
    Refusal(
        "NO_STREAM",
        "the query reads no stream, only {tables}",
        "ask Spark directly for queries over tables alone",
    ),
    # Parts of the public surface that are builders, not text
    Refusal("INVALID_BUILDER_CALL", "{what_it_is}", "{advice}"),
)

_BY_NAME = {refusal.name: refusal for refusal in REFUSALS}


def refusal(condition: str, position: Position | None, /, **details: object) -> SqlError:
    """The error of this name, with its templates filled in."""
    entry = _BY_NAME[condition]
    return SqlError(
        _one_line(entry.what.format_map(details)),
        hint=_one_line(entry.hint.format_map(details)) or None,
        position=position,
        condition=condition,
    )


def _one_line(text: str) -> str:
    """What comes from the user's text may hold line breaks; an error is one line."""
    return " ".join(text.split())


def refuse(condition: str, node: exp.Expr | None, /, **details: object) -> NoReturn:
    """Raise the refusal of this name at the node's place in the text."""
    raise refusal(condition, position_of(node), **details)


def did_you_mean(name: str, candidates: list[str], otherwise: str) -> str:
    """The closest known name as advice, or ``otherwise``.

    >>> did_you_mean("bid", ["bids", "auctions"], "")
    "did you mean 'bids'?"
    """
    lowered = {candidate.lower(): candidate for candidate in reversed(candidates)}
    close = get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.7)
    return f"did you mean {lowered[close[0]]!r}?" if close else otherwise
