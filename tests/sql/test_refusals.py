"""The list of what is refused: every entry with an example, its place in the text, and advice.

An example marks the place that the error must point at with ``▸``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.errors import DurationError, HeadraceError, Position, SqlError
from headrace.sql import plan_query
from headrace.sql.refusals import REFUSALS
from tests.sql.catalog import CATALOG
from tests.support.registering import registered

MARK = "▸"


@dataclass(frozen=True)
class Example:
    """A query that is refused, the condition, and words of the message and the hint."""

    condition: str
    sql: str
    says: str
    advises: str


def _grouped(select: str, group: str = "window(ts, '1 hour')") -> str:
    return f"SELECT {select} FROM bids GROUP BY {group}"


JOINED = "FROM bids b JOIN auctions a ON b.auction = a.id"
WINDOWED = "window(b.ts, '1 hour') = window(a.ts, '1 hour')"

EXAMPLES = [
    # Reading the text
    Example("SYNTAX_ERROR", "SELECT auction FROM bids ▸WHERE", "cannot be read", "Spark SQL"),
    Example("SYNTAX_ERROR", "SELECT (auction ▸FROM bids", "cannot be read", "Spark SQL"),
    Example("SYNTAX_ERROR", "SELECT 'open FROM bids", "cannot be read", "not closed"),
    Example("SYNTAX_ERROR", "  ", "empty", "SELECT"),
    Example("SYNTAX_ERROR", "▸SELECT FROM bids", "something is missing", "SELECT *"),
    Example("SYNTAX_ERROR", "SELECT ts ▸FROM", "something is missing after it", "Spark SQL"),
    Example("SYNTAX_ERROR", "SELECT ts + ▸INTERVAL 5 PARSECS FROM bids", "interval", "INTERVAL 10"),
    Example("SEVERAL_STATEMENTS", "SELECT ts FROM bids; ▸SELECT ts FROM clicks", "2", "by itself"),
    Example("NOT_A_QUERY", "▸INSERT INTO x SELECT * FROM bids", "INSERT", "writeStream"),
    Example("NOT_A_QUERY", "▸CREATE TABLE x AS SELECT * FROM bids", "CREATE", "SELECT"),
    Example("NOT_A_QUERY", "▸DROP TABLE bids", "DROP", "SELECT"),
    Example("NOT_A_QUERY", "▸VALUES (1)", "VALUES", "SELECT"),
    Example(
        "NOT_UNDERSTOOD",
        "SELECT ts FROM bids ▸TIMESTAMP AS OF '2024-01-01'",
        "TIMESTAMP AS OF",
        "register",
    ),
    Example(
        "UNKNOWN_HINT", "SELECT ▸/*+ BROADCAST(bids) */ ts FROM bids", "BROADCAST", "JOIN_ORDER"
    ),
    Example(
        "INVALID_JOIN_ORDER",
        f"SELECT ▸/*+ JOIN_ORDER(a, x) */ price {JOINED}",
        "a, x",
        "by its alias",
    ),
    Example(
        "INVALID_EARLY_AGGREGATION",
        f"SELECT ▸/*+ EARLY_AGGREGATION(a, x) */ count(*) {JOINED} AND {WINDOWED} "
        "GROUP BY window(b.ts, '1 hour')",
        "a, x",
        "by their aliases",
    ),
    Example(
        "IMPOSSIBLE_EARLY_AGGREGATION",
        f"SELECT ▸/*+ EARLY_AGGREGATION(b) */ median(b.price) {JOINED} AND {WINDOWED} "
        "GROUP BY window(b.ts, '1 hour')",
        "median(b.price) needs the joined rows",
        "explain()",
    ),
    Example(
        "IMPOSSIBLE_EARLY_AGGREGATION",
        "SELECT ▸/*+ EARLY_AGGREGATION(b) */ count(*) FROM bids b GROUP BY window(ts, '1 hour')",
        "no join",
        "explain()",
    ),
    Example(
        "IMPOSSIBLE_JOIN_ORDER",
        f"SELECT ▸/*+ JOIN_ORDER(a, c, b) */ page {JOINED} AND {WINDOWED} JOIN clicks c "
        "ON c.page = b.name AND window(b.ts, '1 hour') = window(c.ts, '1 hour')",
        "a and c have neither",
        "explain()",
    ),
    Example(
        "NOTHING_AGGREGATED",
        "SELECT ▸/*+ LATE_AGGREGATION */ price FROM bids",
        "has none",
        "GROUP BY",
    ),
    Example(
        "FIXED_JOIN_ORDER",
        "SELECT ▸/*+ JOIN_ORDER(a, b) */ price FROM bids b JOIN auctions a ON b.auction = a.id AND "
        "session_window(a.ts, '5 minutes') = session_window(b.ts, '5 minutes')",
        "cannot change places",
        "explain()",
    ),
    # Clauses
    Example("DISTINCT", "SELECT ▸DISTINCT auction FROM bids", "for ever", "window(ts, '1 hour')"),
    Example(
        "ORDER_BY", "SELECT auction FROM bids\n▸ORDER BY price", "ORDER BY", "where they are read"
    ),
    Example(
        "ORDER_BY", "SELECT auction FROM bids ▸SORT BY price", "SORT BY", "where they are read"
    ),
    Example("LIMIT", "SELECT auction FROM bids ▸LIMIT 5", "LIMIT", "where they are read"),
    Example("LIMIT", "SELECT auction FROM bids ▸OFFSET 5", "OFFSET", "where they are read"),
    Example(
        "LIMIT", "SELECT a FROM (SELECT auction a FROM bids\n ▸LIMIT 5)", "LIMIT", "where they are"
    ),
    Example("QUALIFY", "SELECT auction FROM bids ▸QUALIFY price > 1", "QUALIFY", "derived table"),
    Example(
        "OVER", "SELECT ▸sum(price) OVER (PARTITION BY auction) FROM bids", "sum() OVER", "trailing"
    ),
    Example("OVER", "SELECT ▸row_number() FROM bids", "row_number", "GROUP BY"),
    Example(
        "UNSUPPORTED_CLAUSE", "SELECT ts FROM bids ▸DISTRIBUTE BY ts", "DISTRIBUTE BY", "leave it"
    ),
    Example("TABLESAMPLE", "SELECT ts FROM bids ▸TABLESAMPLE (5 PERCENT)", "replay", "hash"),
    Example(
        "LATERAL", "SELECT x FROM bids ▸LATERAL VIEW explode(a) t AS x", "LATERAL VIEW", "explode"
    ),
    Example("LATERAL", "SELECT ▸explode(array(1, 2)) FROM bids", "explode()", "before it is"),
    Example(
        "PIVOT",
        "SELECT * FROM bids ▸PIVOT (sum(price) FOR name IN ('a'))",
        "PIVOT",
        "FILTER (WHERE",
    ),
    # Set operations and subqueries
    Example(
        "SET_OPERATION", "SELECT ts FROM bids ▸UNION SELECT ts FROM clicks", "UNION", "UNION ALL"
    ),
    Example("SET_OPERATION", "SELECT ts FROM bids ▸EXCEPT SELECT ts FROM clicks", "EXCEPT", "join"),
    Example(
        "SET_OPERATION", "SELECT ts FROM bids ▸INTERSECT SELECT ts FROM clicks", "INTERSECT", "join"
    ),
    Example(
        "UNION_MISMATCH",
        "SELECT ts FROM bids ▸UNION ALL SELECT ts, page FROM clicks",
        "1 columns and 2 columns",
        "same number",
    ),
    Example(
        "UNION_MISMATCH",
        "SELECT ts FROM bids ▸UNION ALL SELECT auction FROM clicks",
        "ts (timestamp) and auction (int)",
        "CAST",
    ),
    Example(
        "UNION_BY_NAME",
        "SELECT ts FROM bids ▸UNION ALL BY NAME SELECT ts FROM clicks",
        "BY NAME",
        "same order",
    ),
    Example(
        "UNION_WITHOUT_STREAM",
        "SELECT auction FROM bids UNION ALL ▸SELECT id FROM person",
        "only person",
        "DataFrame",
    ),
    Example(
        "NO_OUTPUT_MODE",
        "SELECT count(*) n FROM bids GROUP BY landmark(ts) ▸UNION ALL "
        "SELECT count(*) FROM bids GROUP BY session_window(ts, '5 minutes')",
        "update mode",
        "of their own",
    ),
    Example("SUBQUERY", "SELECT ▸(SELECT max(id) FROM person) FROM bids", "scalar", "JOIN"),
    Example(
        "SUBQUERY", "SELECT ts FROM bids WHERE bidder IN (▸SELECT id FROM person)", "IN", "JOIN"
    ),
    Example(
        "SUBQUERY", "SELECT ts FROM bids WHERE ▸EXISTS (SELECT id FROM person)", "EXISTS", "JOIN"
    ),
    Example(
        "RECURSIVE",
        "▸WITH RECURSIVE r AS (SELECT ts FROM bids) SELECT ts FROM r",
        "recursive",
        "joins",
    ),
    Example("VALUES", "SELECT * FROM ▸VALUES (1), (2)", "VALUES", "table()"),
    Example("VALUES", "SELECT id FROM ▸range(10)", "range", "table()"),
    Example("LAMBDA", "SELECT transform(array(1), ▸x -> x + 1) FROM bids", "lambda", "DataFrame"),
    Example("PARAMETER", "SELECT ts FROM bids WHERE price > ▸:limit", ":limit", "value"),
    # Names
    Example("UNKNOWN_RELATION", "SELECT ts FROM ▸bid", "'bid'", "did you mean 'bids'?"),
    Example("UNKNOWN_RELATION", "SELECT ts FROM ▸orders", "'orders'", "known are bids"),
    Example("UNKNOWN_RELATION", "SELECT ▸x.* FROM bids b", "'x'", "b"),
    Example("UNKNOWN_COLUMN", "SELECT\n  ▸prise\nFROM bids", "'prise'", "did you mean 'price'?"),
    Example(
        "UNKNOWN_COLUMN", "SELECT b.▸zzz FROM bids b".replace("b.▸", "▸b."), "'b.zzz'", "b.price"
    ),
    Example("UNKNOWN_COLUMN", "SELECT ts FROM bids JOIN clicks USING (▸bidder)", "bidder", "right"),
    Example("UNKNOWN_FUNCTION", "SELECT ▸uper(name) FROM bids", "uper()", "did you mean 'upper'?"),
    Example("UNKNOWN_FUNCTION", "SELECT ▸frobnicate(name) FROM bids", "frobnicate", "of Spark"),
    Example("UNKNOWN_FIELD", _grouped("▸window.begin"), "'begin'", "start, end"),
    Example("UNKNOWN_FIELD", "SELECT ▸name.first FROM bids", "string", "only structs"),
    Example("AMBIGUOUS_COLUMN", f"SELECT ▸ts {JOINED}", "'ts' is a column of b and a", "b.ts"),
    Example("DUPLICATE_ALIAS", "SELECT 1 FROM bids JOIN ▸bids ON true", "'bids'", "its own alias"),
    Example("DUPLICATE_COLUMN", "SELECT ts, ▸auction AS ts FROM bids", "'ts'", "AS"),
    Example("DUPLICATE_COLUMN", f"SELECT ▸* {JOINED}", "'ts'", "AS"),
    Example(
        "COLUMN_COUNT",
        "SELECT x FROM (SELECT ts FROM bids) AS ▸d(x, y)",
        "d names 2",
        "each column",
    ),
    # Types and functions
    Example("TYPE_MISMATCH", "SELECT ▸(price > 1) + 1 FROM bids", "boolean + int", "CAST"),
    Example("TYPE_MISMATCH", "SELECT ts FROM bids WHERE ▸ts > 5", "timestamp and int", "CAST"),
    Example("TYPE_MISMATCH", "SELECT ▸name + name FROM bids", "two strings", "CAST"),
    Example("TYPE_MISMATCH", "SELECT ▸CAST(ts AS BOOLEAN) FROM bids", "cannot be cast", "CAST"),
    Example("TYPE_MISMATCH", _grouped("▸sum(ts)"), "argument 1 of sum()", "CAST"),
    Example("TYPE_MISMATCH", "SELECT ▸sqrt(ts) FROM bids", "argument 1 of sqrt()", "CAST"),
    Example(
        "TYPE_MISMATCH",
        "SELECT 1 FROM bids b JOIN (SELECT ts AS auction FROM clicks) c USING (▸auction)",
        "USING (auction)",
        "CAST",
    ),
    Example("ARGUMENT_COUNT", "SELECT ▸upper(name, name) FROM bids", "1 argument, not 2", "Spark"),
    Example("ARGUMENT_COUNT", _grouped("▸sum()"), "1 argument, not 0", "Spark"),
    Example("ARGUMENT_COUNT", _grouped("1", "▸window(ts)"), "window(time, length", "Spark"),
    Example("NOT_A_CONDITION", "SELECT ts FROM bids WHERE ▸price", "double", "compare"),
    Example("NONDETERMINISTIC", "SELECT ▸rand() FROM bids", "rand()", "hash"),
    Example("NONDETERMINISTIC", "SELECT ▸uuid() FROM bids", "replay", "hash"),
    Example("NONDETERMINISTIC", "SELECT ▸now() FROM bids", "now()", "time column"),
    Example("NONDETERMINISTIC", "SELECT ▸current_timestamp FROM bids", "current_timestamp", "time"),
    Example("NONDETERMINISTIC", "SELECT ▸current_timestamp() FROM bids", "replay", "time column"),
    Example("NONDETERMINISTIC", "SELECT ▸current_date FROM bids", "current_date", "time column"),
    Example(
        "NONDETERMINISTIC", "SELECT ▸monotonically_increasing_id() FROM bids", "replay", "hash"
    ),
    Example("NONDETERMINISTIC", "SELECT ▸input_file_name() FROM bids", "input_file_name", "before"),
    Example("NONDETERMINISTIC", "SELECT ▸unix_timestamp() FROM bids", "unix_timestamp", "time"),
    Example("ORDER_DEPENDENT", _grouped("▸first(price)"), "first()", "min_by"),
    Example("ORDER_DEPENDENT", _grouped("▸any_value(price)"), "any_value()", "max_by"),
    Example("UNSUPPORTED_EXPRESSION", _grouped("▸regr_slope(price, bidder)"), "regr_slope", "corr"),
    Example(
        "UNSUPPORTED_EXPRESSION",
        _grouped("▸percentile_cont(0.5) WITHIN GROUP (ORDER BY price)"),
        "WITHIN GROUP",
        "percentile(",
    ),
    Example(
        "UNSUPPORTED_EXPRESSION", "SELECT ▸name LIKE 'a/%' ESCAPE '/' FROM bids", "ESCAPE", "RLIKE"
    ),
    Example(
        "UNSUPPORTED_EXPRESSION",
        "SELECT ▸timestampadd(MINUTE, 5, ts) FROM bids",
        "unit",
        "INTERVAL",
    ),
    # Aggregation
    Example(
        "GROUP_BY_WITHOUT_WINDOW",
        "SELECT auction, count(*) FROM bids ▸GROUP BY auction",
        "needs a window",
        "window(ts, '10 minutes')",
    ),
    Example(
        "GROUP_BY_WITHOUT_WINDOW", "SELECT ▸count(*) FROM bids", "needs a window", "landmark(ts)"
    ),
    Example(
        "AGGREGATE_OF_TABLE",
        "SELECT b.price FROM bids b JOIN (SELECT id, count(*) n FROM person ▸GROUP BY id) p "
        "ON b.bidder = p.id",
        "person alone",
        "table()",
    ),
    Example(
        "GROUPING_SETS", _grouped("1", "window(ts, '1 hour'), ▸CUBE(name)"), "CUBE", "UNION ALL"
    ),
    Example("GROUPING_SETS", _grouped("1", "▸ROLLUP(name)"), "ROLLUP", "UNION ALL"),
    Example(
        "GROUPING_SETS", _grouped("1", "▸GROUPING SETS ((name))"), "GROUPING SETS", "UNION ALL"
    ),
    Example(
        "GROUPING_SETS", "SELECT 1 FROM bids ▸GROUP BY name WITH ROLLUP", "ROLLUP", "UNION ALL"
    ),
    Example(
        "SEVERAL_WINDOWS",
        _grouped("1", "window(ts, '1 hour'), ▸window(ts, '2 hours')"),
        "2 windows",
        "windows(window(",
    ),
    Example(
        "SEVERAL_WINDOWS",
        f"SELECT 1 {JOINED} GROUP BY trailing(b.ts, '1 hour'), ▸trailing(b.ts, '2 hours'), "
        "trailing(a.ts, '1 hour')",
        "same stream",
        "of each of its streams",
    ),
    Example(
        "SEVERAL_WINDOWS",
        f"SELECT 1 {JOINED} GROUP BY landmark(a.ts), ▸session_window(b.ts, '1 hour')",
        "2 windows",
        "of each of its streams",
    ),
    Example(
        "WINDOWS_OF_INPUTS",
        f"SELECT median(b.price) {JOINED} ▸GROUP BY trailing(b.ts, '1 hour'), landmark(a.ts)",
        "the joined rows themselves",
        "count, sum",
    ),
    Example(
        "INPUT_WITHOUT_WINDOW",
        f"SELECT 1 {JOINED} JOIN clicks c ON c.auction = a.id "
        "GROUP BY ▸trailing(b.ts, '1 hour'), landmark(a.ts)",
        "c has none",
        "landmark(c.",
    ),
    Example(
        "INVALID_WINDOWS",
        _grouped("1", "windows(window(ts, '1 hour'), ▸session_window(ts, '1 hour'))"),
        "not a call of window",
        "window(ts, '20 minutes')",
    ),
    Example(
        "INVALID_WINDOWS",
        _grouped("1", "windows(window(ts, '1 hour'), ▸window(ts, '60 minutes'))"),
        "twice",
        "windows(",
    ),
    Example("INVALID_WINDOWS", _grouped("1", "▸windows()"), "none", "windows("),
    Example(
        "WINDOW_OUTSIDE_GROUP_BY",
        "SELECT ▸window(ts, '1 hour') FROM bids",
        "window(…)",
        "names it window",
    ),
    Example(
        "WINDOW_OUTSIDE_GROUP_BY",
        "SELECT 1 FROM bids WHERE ▸session_window(ts, '1 hour').start > ts",
        "session_window(…)",
        "session_window",
    ),
    Example("NO_WINDOW_COLUMN", _grouped("▸window, count(*)", "landmark(ts)"), "landmark", "leave"),
    Example(
        "NO_WINDOW_COLUMN",
        f"SELECT ▸window FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND {WINDOWED}",
        "without a partner",
        "inner join",
    ),
    Example("NO_WINDOW_COLUMN", f"SELECT ▸window {JOINED}", "no window", "window(b.ts"),
    Example(
        "NOT_A_TIME", _grouped("1", "window(▸price, '1 hour')"), "price is double", "time column"
    ),
    Example(
        "NOT_A_TIME", _grouped("1", "window(▸ts + INTERVAL 1 HOUR, '1 hour')"), "computed", "itself"
    ),
    Example(
        "NOT_EVENT_TIME",
        "SELECT 1 FROM auctions GROUP BY ▸window(expires, '1 hour')",
        "expires is not an event time",
        "use ts",
    ),
    Example(
        "NOT_EVENT_TIME",
        "SELECT 1 FROM bids b JOIN auctions a ON b.auction = a.id AND "
        "window(b.ts, '1 hour') = ▸window(a.expires, '1 hour')",
        "a.expires",
        "use a.ts",
    ),
    Example(
        "NOT_EVENT_TIME",
        "SELECT 1 FROM bids b JOIN (SELECT id, DATE '2024-01-01' + INTERVAL 1 HOUR AS x "
        "FROM person) p ON b.bidder = p.id AND window(b.ts, '1 hour') = ▸window(p.x, '1 hour')",
        "belongs to a table",
        "equal keys",
    ),
    Example(
        "NULLABLE_TIME",
        "SELECT 1 FROM bids b LEFT JOIN auctions a ON b.auction = a.id "
        f"AND {WINDOWED} GROUP BY ▸window(a.ts, '1 hour')",
        "a.ts is NULL",
        "keeps",
    ),
    Example(
        "NULLABLE_TIME",
        "WITH c AS (SELECT auction, window FROM clicks GROUP BY auction, window(ts, '1 hour')) "
        "SELECT count(*) FROM c b LEFT JOIN c ON b.auction = c.auction AND b.window = c.window "
        "GROUP BY ▸c.window",
        "c.window is NULL",
        "keeps",
    ),
    Example(
        "NO_EVENT_TIME",
        f"SELECT count(*) {JOINED} GROUP BY ▸window(b.ts, '1 hour')",
        "without a bound on time",
        "BETWEEN",
    ),
    Example(
        "CHANGING_INPUT",
        "SELECT max(n) FROM (SELECT window, count(*) n FROM bids GROUP BY trailing(ts, '1 hour')) "
        "GROUP BY ▸window(window, '1 day')",
        "trailing",
        "from the stream itself",
    ),
    Example(
        "CHANGING_INPUT",
        "SELECT 1 FROM (SELECT auction k, count(*) n FROM bids GROUP BY auction, landmark(ts)) x "
        "▸JOIN clicks c ON x.k = c.auction",
        "landmark",
        "from the stream itself",
    ),
    Example("NESTED_AGGREGATE", _grouped("sum(▸max(price))"), "sum() holds", "derived table"),
    Example(
        "NESTED_AGGREGATE",
        _grouped("sum(price) FILTER (WHERE ▸max(price) > 1)"),
        "max()",
        "derived",
    ),
    Example("MISSING_FROM_GROUP_BY", _grouped("▸name, count(*)"), "name", "max(name)"),
    Example("MISSING_FROM_GROUP_BY", _grouped("count(*) + ▸price"), "price", "GROUP BY"),
    Example("AGGREGATE_IN_WHERE", "SELECT 1 FROM bids WHERE ▸max(price) > 1", "WHERE", "HAVING"),
    Example("AGGREGATE_IN_WHERE", _grouped("1", "▸max(price)"), "GROUP BY", "derived table"),
    Example("HAVING_WITHOUT_GROUP_BY", "SELECT ts FROM bids ▸HAVING price > 1", "HAVING", "WHERE"),
    Example("GROUP_BY_POSITION", "SELECT ts FROM bids GROUP BY ▸3", "3", "1 to 1"),
    # Joins
    Example("CROSS_JOIN", "SELECT 1 FROM bids ▸CROSS JOIN clicks", "never ends", "ON"),
    Example("CROSS_JOIN", "SELECT 1 FROM bids▸, clicks", "never ends", "ON"),
    Example(
        "CROSS_JOIN",
        "SELECT 1 FROM bids b▸, clicks c WHERE b.auction = c.auction OR b.price > 1",
        "nothing joins",
        "WHERE",
    ),
    Example(
        "CROSS_JOIN",
        "SELECT 1 FROM bids b▸, clicks c LEFT JOIN person p ON b.bidder = p.id "
        "WHERE b.auction = c.auction",
        "nothing joins",
        "ON",
    ),
    Example("NATURAL_JOIN", "SELECT 1 FROM bids ▸NATURAL JOIN person", "in common", "ON"),
    Example(
        "SEMI_JOIN", "SELECT 1 FROM bids ▸LEFT SEMI JOIN person ON id = bidder", "SEMI", "join"
    ),
    Example(
        "SEMI_JOIN", "SELECT 1 FROM bids ▸LEFT ANTI JOIN person ON id = bidder", "ANTI", "IS NULL"
    ),
    Example(
        "JOIN_WITHOUT_KEY", "SELECT 1 FROM bids b ▸JOIN auctions a ON b.price > a.id", "nor", "a.ts"
    ),
    Example(
        "JOIN_WITHOUT_KEY", "SELECT 1 FROM bids b ▸JOIN person p ON b.price > p.id", "nor", "key"
    ),
    Example("JOIN_WITHOUT_KEY", "SELECT 1 FROM bids ▸JOIN clicks", "neither equal keys", "key"),
    Example(
        "JOIN_WITHOUT_EVENT_TIME",
        "SELECT b.price FROM (SELECT auction, price FROM bids) b "
        "▸JOIN clicks c ON b.auction = c.auction",
        "b has no event time",
        "time column",
    ),
    Example(
        "JOIN_WITHOUT_EVENT_TIME",
        "SELECT b.price FROM (SELECT auction, window.start AS s FROM clicks "
        "GROUP BY auction, window(ts, '1 hour')) x ▸JOIN bids b ON x.auction = b.auction "
        "AND b.ts BETWEEN x.s AND x.s + INTERVAL 1 HOUR",
        "x has no event time",
        "window_time(window)",
    ),
    Example(
        "WINDOW_MISMATCH",
        f"SELECT 1 {JOINED} AND ▸window(b.ts, '1 hour') = window(a.ts, '2 hours')",
        "window('1 hour') and window('2 hours')",
        "same length",
    ),
    Example(
        "JOIN_SIDES",
        f"SELECT 1 {JOINED} AND ▸window(b.ts, '1 hour') = window(b.ts, '1 hour')",
        "each side",
        "window(a.ts",
    ),
    Example(
        "JOIN_SIDES",
        f"SELECT 1 {JOINED} AND ▸window(b.ts, '1 hour').start = a.ts",
        "window(…)",
        "=",
    ),
    Example(
        "EMPTY_INTERVAL",
        "SELECT 1 FROM bids b JOIN auctions a ON ▸b.auction = a.id "
        "AND a.ts BETWEEN b.ts + INTERVAL 2 HOURS AND b.ts + INTERVAL 1 HOUR",
        "from 2 hours to 1 hour",
        "lower bound",
    ),
    Example(
        "OUTER_JOIN_UNBOUNDED",
        "SELECT 1 FROM bids b ▸LEFT JOIN auctions a ON b.auction = a.id AND a.ts >= b.ts",
        "no upper bound",
        "a.ts <= b.ts + INTERVAL",
    ),
    Example(
        "OUTER_JOIN_UNBOUNDED",
        "SELECT 1 FROM bids b ▸RIGHT JOIN auctions a ON b.auction = a.id AND a.ts <= b.ts",
        "no lower bound",
        "a.ts >= b.ts - INTERVAL",
    ),
    Example(
        "OUTER_JOIN_WITHOUT_TIME",
        "SELECT 1 FROM bids b ▸FULL OUTER JOIN auctions a ON b.auction = a.id",
        "full outer join",
        "window(a.ts, …)",
    ),
    Example(
        "OUTER_SESSION_JOIN",
        "SELECT 1 FROM bids b ▸LEFT JOIN auctions a ON b.auction = a.id AND "
        "session_window(a.ts, '1 hour') = session_window(b.ts, '1 hour')",
        "sessions",
        "inner join",
    ),
    Example(
        "OUTER_JOIN_OF_TABLE",
        "SELECT 1 FROM bids b ▸RIGHT JOIN person p ON b.bidder = p.id",
        "rows of the table",
        "stream LEFT JOIN table",
    ),
    Example(
        "OUTER_JOIN_OF_TABLE",
        "SELECT 1 FROM person p ▸LEFT JOIN bids b ON b.bidder = p.id",
        "rows of the table",
        "table RIGHT JOIN stream",
    ),
    Example("NO_STREAM", "▸SELECT * FROM person", "only person", "Spark directly"),
    Example("NO_STREAM", "▸SELECT 1", "only constants", "Spark directly"),
]

DURATIONS = [
    ("▸'0 minutes'", "must be positive"),
    ("▸'-5 minutes'", "must be positive"),
    ("▸'1 month'", "calendar"),
    ("▸'five minutes'", "cannot read"),
    ("▸''", "empty"),
    ("▸'5 parsecs'", "unknown unit"),
    ("▸'1 microsecond'", "whole number of milliseconds"),
    ("▸10", "constant"),
    ("▸name", "constant"),
]


def _place(marked: str) -> tuple[str, Position | None]:
    """The text without its mark, and where the mark was."""
    before, mark, after = marked.partition(MARK)
    if not mark:
        return marked, None
    line = before.count("\n") + 1
    return before + after, Position(line, len(before) - (before.rfind("\n") + 1) + 1)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.condition}: {e.sql[:60]}")
def test_refusal(example: Example) -> None:
    sql, position = _place(example.sql)
    with pytest.raises(SqlError) as caught:
        registered(sql, CATALOG)
    error = caught.value
    assert error.condition == example.condition, str(error)
    assert example.says in error.message, str(error)
    assert example.advises in (error.hint or ""), str(error)
    assert error.position == position, str(error)
    assert "\n" not in str(error)


def test_every_refusal_has_an_example() -> None:
    shown = {example.condition for example in EXAMPLES}
    # The builder's own refusals are tested with the builder.
    assert {refusal.name for refusal in REFUSALS} - shown == {"INVALID_BUILDER_CALL", "VIEW_CYCLE"}


@pytest.mark.parametrize("form", ["window(ts, {})", "session_window(ts, {})", "trailing(ts, {})"])
@pytest.mark.parametrize(("duration", "says"), DURATIONS)
def test_durations(form: str, duration: str, says: str) -> None:
    sql, position = _place(f"SELECT count(*)\nFROM bids\nGROUP BY {form.format(duration)}")
    with pytest.raises(DurationError) as caught:
        plan_query(sql, CATALOG)
    assert says in caught.value.message
    assert caught.value.position == position
    assert caught.value.condition == "INVALID_DURATION"


def test_a_slide_must_be_positive() -> None:
    with pytest.raises(DurationError, match="slide must be positive"):
        plan_query("SELECT 1 FROM bids GROUP BY window(ts, '1 hour', '0 minutes')", CATALOG)


def test_errors_are_one_family() -> None:
    assert issubclass(SqlError, HeadraceError)
    assert issubclass(DurationError, HeadraceError)
