"""Pairs of queries written out: those that must be merged, and near misses that must not.

``readings`` has columns of all types (y, z tinyint; i, j int; l, m bigint; d, e double; s, t
string; b, c boolean; at, ts timestamp), ``events`` and ``places`` some of them.
"""

from __future__ import annotations

from headrace.plan.nodes import Node, Source, Table
from headrace.plan.types import DOUBLE, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.merge.generate import EVENTS, PLACES, READINGS

CARS = Source("cars", Schema.of([("color", STRING), ("speed", DOUBLE), ("ts", TIMESTAMP)]), "ts")
CATALOG: dict[str, Source | Table] = {
    "readings": READINGS,
    "events": EVENTS,
    "places": PLACES,
    "cars": CARS,
}

Pairs = dict[str, tuple[str, str]]


def plan_of(sql: str) -> Node:
    return plan_query(sql, CATALOG).plan


def where(condition: str, columns: str = "*") -> str:
    return f"SELECT {columns} FROM readings WHERE {condition}"


def select(columns: str) -> str:
    return f"SELECT {columns} FROM readings"


def by_window(
    call: str, window: str = "window(ts, '10 seconds')", keys: str = "i", rows: str = "readings"
) -> str:
    return f"SELECT {keys}, window, {call} AS v FROM {rows} GROUP BY {keys}, {window}"


def joined(
    on: str = "a.l = b.l",
    kind: str = "JOIN",
    rest: str = "",
    a: str = "readings",
    b: str = "events",
) -> str:
    return f"SELECT a.i AS x, b.i AS y, a.s FROM {a} a {kind} {b} b ON {on} {rest}"


def union(first: str, second: str) -> str:
    return f"{first} UNION ALL {second}"


_I, _J = "CAST(i AS BIGINT)", "CAST(j AS BIGINT)"
_A, _B = "SELECT i, j, ts FROM readings", "SELECT i, i AS j, ts FROM events"
_AFTER = "b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS"
_TEN, _FIVE = "window(ts, '10 seconds')", "window(ts, '5 seconds')"

SAME: Pairs = {
    # Conditions
    "order of conjuncts": (where("i > 3 AND s = 'a' AND b"), where("b AND s = 'a' AND i > 3")),
    "sides of a comparison": (where("i > 3"), where("3 < i")),
    "sides of an equation": (where("s = t"), where("t = s")),
    "sides of an equation that knows NULL": (where("s <=> t"), where("t <=> s")),
    "negated comparison": (where("NOT (i < j)"), where("i >= j")),
    "negation twice": (where("NOT NOT b"), where("b")),
    "De Morgan": (where("NOT (i > 3 OR s = 'a')"), where("i <= 3 AND s <> 'a'")),
    "IN and OR": (where("i IN (1, 2, 3)"), where("i = 3 OR i = 1 OR i = 2")),
    "NOT IN and AND": (where("s NOT IN ('a', 'b')"), where("s <> 'a' AND s <> 'b'")),
    "BETWEEN": (where("l BETWEEN 2 AND 5"), where("5 >= l AND l >= 2")),
    "next whole number": (where("i < 4"), where("i <= 3")),
    "least factor": (where(f"10 * {_I} < 35"), where("i <= 3")),
    "common factor": (where(f"4 * {_I} + 6 * {_J} <= 9"), where(f"2 * {_I} + 3 * {_J} <= 4")),
    "shifted": (where(f"{_I} - 5 < {_J} - 5"), where("i < j")),
    "one side": (where(f"{_I} - {_J} > 0"), where("j < i")),
    "scaled by a negative": (where(f"-2 * {_I} >= -2 * {_J}"), where("i <= j")),
    "a bound that follows": (where("i > 5 AND i > 3"), where("i > 5")),
    "a bound and a hole": (where("i >= 2 AND i <> 2"), where("i > 2")),
    "two bounds, one value": (where("i >= 2 AND i <= 2"), where("i = 2")),
    "a hole out of reach": (where("i > 5 AND i <> 3"), where("i > 5")),
    "what is compared is there": (where("i > 5 AND i IS NOT NULL"), where("i > 5")),
    "nothing but being there": (where(f"{_I} > {_I} - 4"), where("i IS NOT NULL")),
    "nothing but two being there": (
        where(f"{_I} - {_J} < {_I} - {_J} + 1"),
        where("i IS NOT NULL AND j IS NOT NULL"),
    ),
    "a sum that is there": (
        where(f"{_I} + {_J} IS NOT NULL"),
        where("i IS NOT NULL AND j IS NOT NULL"),
    ),
    "a flag": (where("b = TRUE AND c = FALSE"), where("NOT c AND b")),
    "LIKE without wildcards": (where("s LIKE 'ab'"), where("s = 'ab'")),
    "the same twice": (where("i > 3 AND i > 3"), where("i > 3")),
    # Only a proof decides these
    "implied by two others": (where("i > 5 AND j > i AND j > 3"), where("i > 5 AND j > i")),
    "distributed": (
        where("(i > 0 AND j > 0) OR (i > 0 AND l > 0)"),
        where("i > 0 AND (j > 0 OR l > 0)"),
    ),
    "absorbed in one comparison": (where("i > 0 OR (i > 0 AND s = 'a')"), where("i > 0")),
    "absorbed": (where("i > j OR (i > j AND s = 'a')"), where("i > j")),
    "resolved": (where("(i > j AND b) OR (i > j AND NOT b)"), where("i > j AND (b OR NOT b)")),
    "cases that cover": (
        where("(i < 3 AND j > i) OR (i >= 3 AND j > i)"),
        where("i < j"),
    ),
    "a chain": (where("i < j AND j < l AND i < l"), where("i < j AND j < l")),
    # Values
    "sums multiplied out": (select(f"2 * ({_I} + {_J}) AS x"), select(f"{_J} * 2 + 2 * {_I} AS x")),
    "product of sums": (
        select("(CAST(y AS BIGINT) + z) * (CAST(y AS BIGINT) - z) AS x"),
        select("CAST(y AS BIGINT) * y - CAST(z AS BIGINT) * z AS x"),
    ),
    "doubles in either order": (select("d * e + d AS x"), select("d + e * d AS x")),
    "conditions as values": (select("NOT (i < j AND b) AS x"), select("i >= j OR NOT b AS x")),
    # Operators in another order
    "filter above a projection": (
        f"SELECT x FROM (SELECT {_I} + 1 AS x FROM readings) WHERE x > 5",
        where("i >= 5", f"1 + {_I} AS x"),
    ),
    "two filters for one": (
        "SELECT i FROM (SELECT * FROM readings WHERE b) WHERE i > 3",
        where("i > 3 AND b", "i"),
    ),
    "other names on the way": (
        "SELECT p AS i, q AS x FROM (SELECT i AS p, s AS q FROM readings) WHERE p > 3",
        where("i > 3", "i, s AS x"),
    ),
    "maps in another order": (
        f"SELECT x, {_J} + 1 AS y FROM (SELECT {_I} * 2 AS x, j FROM readings)",
        f"SELECT {_I} + i AS x, y FROM (SELECT {_J} + 1 AS y, i FROM readings)",
    ),
    "filter above a union": (
        f"SELECT * FROM ({union(_A, _B)}) WHERE i > 3",
        union(f"{_A} WHERE i > 3", f"{_B} WHERE i > 3"),
    ),
    "parts of a union": (union(_A, _B), union(_B, _A)),
    "a union of unions": (
        union(f"SELECT * FROM ({union(_A, _B)})", _A),
        union(_A, f"SELECT * FROM ({union(_A, _B)})"),
    ),
    # Windows
    "tumbling as sliding": (
        by_window("sum(l)"),
        by_window("sum(l)", "window(ts, '10 seconds', '10 seconds')"),
    ),
    "order of keys": (
        f"SELECT i, s, window, sum(l) AS v FROM readings GROUP BY s, i, {_TEN}",
        f"SELECT i, s, window, sum(l) AS v FROM readings GROUP BY {_TEN}, i, s",
    ),
    "filtered before a window": (
        by_window("sum(l)", rows="(SELECT * FROM readings WHERE b) WHERE i < 5"),
        by_window("sum(l)", rows="readings WHERE b AND i <= 4"),
    ),
    "sums of the same": (by_window(f"max({_J} + {_J})"), by_window(f"max(2 * {_J})")),
    "windows in another order": (
        f"SELECT window, window_id, count(*) AS v FROM readings GROUP BY windows({_TEN}, {_FIVE})",
        f"SELECT window, window_id, count(*) AS v FROM readings GROUP BY windows({_FIVE}, {_TEN})",
    ),
    # What is proved of a filter holds for all that is made of it.
    "a proof below groups": (
        by_window("sum(l)", rows="readings WHERE i > 3 OR i > 5"),
        by_window("sum(l)", rows="readings WHERE i > 3"),
    ),
    "a proof below a union": (
        union(f"{_A} WHERE i IN (1, 2, 3)", _B),
        union(_B, f"{_A} WHERE i BETWEEN 1 AND 3").replace(_B, "SELECT i, i AS j, ts FROM events"),
    ),
    # Joins
    "names in an outer join": (
        joined(f"a.l = b.l AND {_AFTER}", "LEFT JOIN"),
        "SELECT p.i AS x, q.i AS y, p.s FROM readings p LEFT JOIN events q ON q.l = p.l AND "
        "q.ts BETWEEN p.ts AND p.ts + INTERVAL 10 SECONDS",
    ),
    "an outer join from the other side": (
        joined(f"a.l = b.l AND {_AFTER}", "LEFT JOIN"),
        "SELECT a.i AS x, b.i AS y, a.s FROM events b RIGHT JOIN readings a "
        f"ON a.l = b.l AND {_AFTER}",
    ),
    "conditions of an outer join in another order": (
        joined(f"a.l = b.l AND a.s = b.s AND a.i > 3 AND {_AFTER}", "LEFT JOIN"),
        joined(f"{_AFTER} AND a.i > 3 AND b.s = a.s AND a.l = b.l", "LEFT JOIN"),
    ),
    "names in a session join": (
        joined(
            "a.l = b.l AND session_window(a.ts, '3 seconds') = session_window(b.ts, '3 seconds')"
        ),
        "SELECT p.i AS x, q.i AS y, p.s FROM events q JOIN readings p ON q.l = p.l "
        "AND session_window(q.ts, '3 seconds') = session_window(p.ts, '3 seconds')",
    ),
    "sides of a join": (
        joined(f"a.l = b.l AND {_AFTER}"),
        "SELECT a.i AS x, b.i AS y, a.s FROM events b JOIN readings a ON b.l = a.l AND "
        "a.ts BETWEEN b.ts - INTERVAL 10 SECONDS AND b.ts",
    ),
    "filter above a join": (
        joined(f"a.l = b.l AND {_AFTER}", rest="WHERE a.i > 3"),
        joined(f"a.l = b.l AND {_AFTER}", a="(SELECT * FROM readings WHERE 3 < i)"),
    ),
    "conditions of both sides": (
        joined(f"a.l = b.l AND {_AFTER} AND a.i < b.i"),
        joined(f"a.l = b.l AND {_AFTER}", rest="WHERE b.i > a.i"),
    ),
    "what is known of equal keys": (
        joined(f"a.l = b.l AND {_AFTER}", rest="WHERE a.l > 3"),
        joined(f"a.l = b.l AND {_AFTER}", rest="WHERE b.l > 3"),
    ),
}

DIFFERENT: Pairs = {
    # Conditions
    "a constant by one": (where("i > 3"), where("i > 4")),
    "a bound included": (where("l <= 3"), where("l < 3")),
    "a bound of doubles included": (where("d >= 1.0D"), where("d > 1.0D")),
    "AND and OR": (where("i > 2 AND j > 2"), where("i > 2 OR j > 2")),
    "equal, and equal with NULL": (where("i = j"), where("i <=> j")),
    "another column": (where("i > 0"), where("j > 0")),
    "the other direction": (where("i < j"), where("j < i")),
    "negated, and turned round": (where("NOT (i < j)"), where("i > j")),
    "NOT IN with NULL": (where("i NOT IN (1, NULL)"), where("i <> 1")),
    "IN with NULL, as a value": (select("i IN (1, NULL) AS x"), select("i = 1 AS x")),
    "NOT LIKE, and not there": (where("NOT (s LIKE 'a')"), where("s <> 'a' OR s IS NULL")),
    "a pattern's wildcard": (where("s LIKE 'a%'"), where("s LIKE '%a'")),
    "a pattern of any one": (where("s LIKE '_'"), where("s = '_'")),
    "a pattern and its text": (where("s LIKE 'a%'"), where("s = 'a%'")),
    "letters of another case": (where("s = 'a'"), where("s = 'A'")),
    "a flag and its being there": (where("b = TRUE"), where("b IS NOT NULL")),
    "a flag, and not": (where("b"), where("NOT b")),
    "one of two NULLs": (where(f"{_I} + {_J} IS NULL"), where("i IS NULL")),
    "being there, and nothing": (where(f"{_I} > {_I} - 4"), select("*")),
    "a factor that rounds": (where(f"10 * {_I} < 35"), where("i < 3")),
    "a factor with a rest": (where(f"2 * {_I} = 7"), where(f"2 * {_I} = 6")),
    "a bound that does not follow": (where("i > 3 AND j > i"), where("i > 3 AND j > 3")),
    "AND over OR": (where("i > 0 AND (j > 0 OR l > 0)"), where("(i > 0 AND j > 0) OR l > 0")),
    "an instant": (
        where("at < TIMESTAMP '2024-05-01 12:00:04Z'"),
        where("at < TIMESTAMP '2024-05-01 12:00:06Z'"),
    ),
    # Values
    "zero times": (select("i * 0 AS x"), select("0 AS x")),
    "less itself": (select(f"{_I} - {_I} AS x"), select("0L AS x")),
    "halved and doubled": (select("CAST(i AS DOUBLE) / 2 * 2 AS x"), select("i AS x")),
    "halves without a rest": (select("(l div 2) * 2 AS x"), select("l AS x")),
    "two kinds of division": (select("CAST(l div 2 AS DOUBLE) AS x"), select("l / 2 AS x")),
    "a number and its text": (select("'1' AS x"), select("1 AS x")),
    "a whole number and a double": (select("1 AS x"), select("1.0D AS x")),
    "sums of doubles and of others": (select("i + 1 AS x"), select("i + 1.0D AS x")),
    "another width": (select("i AS x"), select("CAST(i AS BIGINT) AS x")),
    "subtracted the other way": (select("d - e AS x"), select("e - d AS x")),
    "doubles in other groups": (select("(d + e) + 0.1D AS x"), select("d + (e + 0.1D) AS x")),
    "text the other way": (select("s || t AS x"), select("t || s AS x")),
    "upper and lower": (select("upper(s) AS x"), select("lower(s) AS x")),
    "a value for NULL": (select("coalesce(i, 0) AS x"), select("i AS x")),
    "a name": (select("i AS x"), select("i AS y")),
    "columns exchanged": (select("i AS x, j AS y"), select("j AS x, i AS y")),
    "cases in another order": (
        select("CASE WHEN i > 0 THEN 1 WHEN j > 0 THEN 2 ELSE 3 END AS x"),
        select("CASE WHEN j > 0 THEN 2 WHEN i > 0 THEN 1 ELSE 3 END AS x"),
    ),
    "another width, and a proof": (
        where("i < j", "i AS x"),
        where("i < j", "CAST(i AS BIGINT) AS x"),
    ),
    # Spark brings all of a list to one type, and only then compares.
    "a list of two types": (
        where("l IN (9007199254740993, 0.5D)"),
        where("l = 9007199254740993 OR l = 0.5D"),
    ),
    # Unions
    "the other branch": (
        union(f"{_A} WHERE i > 3", _B),
        union(_A, f"{_B} WHERE i > 3"),
    ),
    "one branch only": (
        f"SELECT * FROM ({union(_A, _B)}) WHERE i > 3",
        union(f"{_A} WHERE i > 3", _B),
    ),
    "once and twice": (_A, union(_A, _A)),
    "columns of a part": (
        union(_A, "SELECT i, j, ts FROM readings"),
        union(_A, "SELECT j, i, ts FROM readings"),
    ),
    "another stream": ("SELECT i, l, ts FROM readings", "SELECT i, l, ts FROM events"),
    # Windows
    "a window's length": (by_window("sum(l)"), by_window("sum(l)", "window(ts, '12 seconds')")),
    "a window's slide": (
        by_window("sum(l)", "window(ts, '10 seconds', '5 seconds')"),
        by_window("sum(l)", "window(ts, '10 seconds', '2 seconds')"),
    ),
    "a window's offset": (
        by_window("sum(l)", "window(ts, '10 seconds', '10 seconds', '1 second')"),
        by_window("sum(l)"),
    ),
    "a session's gap": (
        by_window("sum(l)", "session_window(ts, '1 second')"),
        by_window("sum(l)", "session_window(ts, '3 seconds')"),
    ),
    "another argument": (by_window("sum(l)"), by_window("sum(m)")),
    "another aggregate": (by_window("min(l)"), by_window("max(l)")),
    "distinct": (by_window("count(l)"), by_window("count(DISTINCT l)")),
    "rows and values": (by_window("count(*)"), by_window("count(l)")),
    "a filter of an aggregate": (by_window("sum(l) FILTER (WHERE b)"), by_window("sum(l)")),
    "a filter and a condition": (
        by_window("count(*) FILTER (WHERE b)"),
        by_window("count(*)", rows="readings WHERE b"),
    ),
    "another key": (
        by_window("sum(l)", keys="i").replace("SELECT i", "SELECT i AS k"),
        by_window("sum(l)", keys="j").replace("SELECT j", "SELECT j AS k"),
    ),
    "one key more": (
        by_window("sum(l)"),
        f"SELECT i, window, sum(l) AS v FROM readings GROUP BY i, j, {_TEN}",
    ),
    "before and after the groups": (
        by_window("sum(l)", rows="readings WHERE l > 2"),
        by_window("sum(l)") + " HAVING sum(l) > 2",
    ),
    # Joins
    "a join's key": (joined("a.l = b.l"), joined("a.m = b.l")),
    "a join's kind": (
        joined(f"a.l = b.l AND {_AFTER}"),
        joined(f"a.l = b.l AND {_AFTER}", "LEFT JOIN"),
    ),
    "a bound on time": (
        joined(f"a.l = b.l AND {_AFTER}"),
        joined("a.l = b.l AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 12 SECONDS"),
    ),
    "after and before": (
        joined(f"a.l = b.l AND {_AFTER}"),
        joined("a.l = b.l AND a.ts BETWEEN b.ts AND b.ts + INTERVAL 10 SECONDS"),
    ),
    "sides of a join exchanged, but not its bounds": (
        joined(f"a.l = b.l AND {_AFTER}"),
        "SELECT a.i AS x, b.i AS y, a.s FROM events b JOIN readings a ON b.l = a.l AND "
        "a.ts BETWEEN b.ts AND b.ts + INTERVAL 10 SECONDS",
    ),
    "a kept side": (
        joined(f"a.l = b.l AND {_AFTER}", "LEFT JOIN"),
        joined(f"a.l = b.l AND {_AFTER}", "RIGHT JOIN"),
    ),
    "any time": (joined("a.l = b.l"), joined(f"a.l = b.l AND {_AFTER}")),
    "a join's window": (
        joined("a.l = b.l AND window(a.ts, '10 seconds') = window(b.ts, '10 seconds')"),
        joined("a.l = b.l AND window(a.ts, '20 seconds') = window(b.ts, '20 seconds')"),
    ),
    "the other side of a stream with itself": (
        joined(f"a.l = b.l AND {_AFTER}", rest="WHERE a.i > 2", a="events"),
        joined(f"a.l = b.l AND {_AFTER}", rest="WHERE b.i > 2", a="events"),
    ),
    "above and below an outer join": (
        joined(f"a.l = b.l AND {_AFTER}", "LEFT JOIN", "WHERE b.i > 2"),
        joined(f"a.l = b.l AND {_AFTER}", "LEFT JOIN", b="(SELECT * FROM events WHERE i > 2)"),
    ),
}

#: Unequal only because a sum may overflow, or a zero divide: equal for whole numbers that never do.
DIFFERENT_IF_EXACT: Pairs = {
    "shifted sums that overflow": (where("i - 5 < j - 5"), where("i < j")),
    "shifted sums of BIGINT": (where("l - 5 < m - 5"), where("l < m")),
    "a factor that overflows": (where("10 * i < 35"), where("i <= 3")),
    "sums in other groups": (select("(i + j) + 1 AS x"), select("i + (j + 1) AS x")),
    "products of tiny numbers": (select("(y + z) * z AS x"), select("y * z + z * z AS x")),
    "less itself, if it can be doubled": (where("(i + i) - i > 3"), where("i > 3")),
    "a sum and its NULLs": (where("l + m IS NOT NULL"), where("l IS NOT NULL AND m IS NOT NULL")),
    "narrowed": (where("CAST(l AS INT) > 3"), where("l > 3")),
    "an overflow before a contradiction": (
        where("i < j AND j < i"),
        where("i + 1 > 0 AND i < j AND j < i"),
    ),
    "a guard of a sum": (where("i < 9 AND i + 5 > 3"), where("i + 5 > 3 AND i < 9")),
}

#: Unequal in any arithmetic, because of the rows that a condition keeps from another that raises.
DIFFERENT_BY_ERRORS: Pairs = {
    "a guard before and after": (
        where("l <> 0 AND 10 div l > 1"),
        where("10 div l > 1 AND l <> 0"),
    ),
    "a guard in another filter": (
        "SELECT * FROM (SELECT * FROM readings WHERE l <> 0) WHERE 10 div l > 1",
        "SELECT * FROM (SELECT * FROM readings WHERE 10 div l > 1) WHERE l <> 0",
    ),
    "a guard in an OR": (where("l = 0 OR 10 div l > 1"), where("10 div l > 1 OR l = 0")),
    "operands of a sum that raise": (
        select("CAST(i % j AS BIGINT) + y AS x"),
        select("y + CAST(i % j AS BIGINT) AS x"),
    ),
    "sides of a comparison that raise": (select("i % j > y AS x"), select("y < i % j AS x")),
    "a weaker guard": (where("l > 0 AND 10 div l > 1"), where("l >= 0 AND 10 div l > 1")),
    "a guard after what it guards, and a proof": (
        where("i < j AND l <> 0 AND 10 div l > 1"),
        where("i < j AND 10 div l > 1 AND l <> 0"),
    ),
    "a guard that a proof needs": (
        where("i < j AND j < l AND 10 div (l - i) > 1"),
        where("j < l AND 10 div (l - i) > 1 AND i < j"),
    ),
}

#: Unequal because of errors on rows that no oracle of ours tells apart.
DIFFERENT_UNSEEN: Pairs = {
    "a text that is multiplied": (where("t = 'a' AND s * d > 1"), where("s * d > 1 AND t = 'a'")),
    "a cast that a comparison makes": (
        select("d > CAST(s AS DOUBLE) AS x"),
        select("CAST(s AS DOUBLE) < d AS x"),
    ),
    "a list of text and numbers": (where("s IN ('1', 2)"), where("s = '1' OR s = 2")),
    # A column that is computed below a join is computed for rows without a partner too.
    "an overflow below a join": (
        "SELECT a.x, b.i FROM (SELECT i + i AS x, l, ts FROM readings) a "
        "JOIN events b ON a.l = b.l",
        "SELECT a.i + a.i AS x, b.i FROM readings a JOIN events b ON a.l = b.l",
    ),
    "a zero below a join": (
        "SELECT a.x, b.i FROM (SELECT i div j AS x, l, ts FROM readings) a "
        "JOIN events b ON a.l = b.l",
        "SELECT a.i div a.j AS x, b.i FROM readings a JOIN events b ON a.l = b.l",
    ),
}
