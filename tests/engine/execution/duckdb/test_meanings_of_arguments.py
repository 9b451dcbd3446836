"""What means the same for some arguments: calendars, texts, regular expressions, decimals.

Both engines over edge cases and random values, as in ``test_meanings``.
"""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from itertools import product

import duckdb
import pytest
from pyspark.sql import SparkSession

from headrace.engine.execution.duckdb import calendars, meanings, patterns, texts
from headrace.engine.execution.duckdb.calendars import reads_clocks
from headrace.engine.execution.duckdb.patterns import read_pattern
from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.plan.expressions import Call, Cast, Column, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    decimal,
)
from headrace.sql.render import to_sqlglot
from tests.engine.execution.duckdb.test_meanings import EDGES, Engines, moment
from tests.support.seeds import Seeds


@pytest.fixture(scope="module")
def engines(spark: SparkSession) -> Engines:
    return Engines(spark)


def text(value: str) -> Literal:
    return Literal(value, STRING)


def number(value: int) -> Literal:
    return Literal(value, INT)


def c0(kind: DataType) -> Column:
    return Column("c0", kind)


# --- calendars -----------------------------------------------------------------------------------

PARTS = sorted(
    calendars.TRANSLATIONS.keys()
    - {"date_trunc", "date_format", "date_add", "date_sub", "datediff", "date_diff", "last_day"}
)
OF_DATES = [part for part in PARTS if part not in ("hour", "minute", "second")]
FORMATS = ("yyyy-MM-dd", "HH:mm", "yyyy-MM-dd HH:mm:ss.SSS", "dd/MM/yyyy", "yyyyMMdd_HH")
UNITS = ("YEAR", "quarter", "MM", "week", "dd", "hour", "minute", "SECOND")


def random_moments(chance: random.Random) -> list[datetime.datetime | None]:
    micros = [chance.randrange(-60_000_000_000_000_000, 250_000_000_000_000_000) for _ in range(60)]
    recent = [chance.randrange(1_600_000_000_000_000, 1_800_000_000_000_000) for _ in range(30)]
    return [*EDGES[TIMESTAMP], *map(moment, micros + recent)]


def test_parts_of_timestamps(engines: Engines, seeds: Seeds) -> None:
    chance = random.Random(f"calendars {seeds.one(0)}")
    engines.load([TIMESTAMP], [(value,) for value in random_moments(chance)])
    at = c0(TIMESTAMP)
    engines.agree(
        [
            *(Call(part, (at,), INT) for part in PARTS),
            *(Call("date_trunc", (text(unit), at), TIMESTAMP) for unit in UNITS),
            Cast(at, DATE),
            Cast(Cast(at, DATE), TIMESTAMP),
            *(
                Call(sign, (at, Literal(span, INTERVAL)), TIMESTAMP)
                for sign in ("+", "-")
                for span in ("5 seconds", "1 day 2 hours", "0.5 seconds")
            ),
        ]
    )


def test_parts_of_dates(engines: Engines, seeds: Seeds) -> None:
    chance = random.Random(f"dates {seeds.one(0)}")
    first = datetime.date(1, 1, 1).toordinal()
    days = [datetime.date.fromordinal(first + chance.randrange(3_600_000)) for _ in range(80)]
    rows = [(day, chance.choice(days), chance.randrange(-400, 400)) for day in days]
    engines.load([DATE, DATE, INT], [*rows, (None, days[0], 1), (days[0], None, None)])
    day, other, count = c0(DATE), Column("c1", DATE), Column("c2", INT)
    engines.agree(
        [
            *(Call(part, (day,), INT) for part in OF_DATES),
            Call("date_add", (day, count), DATE),
            Call("date_sub", (day, number(3)), DATE),
            Call("datediff", (day, other), INT),
            Call("date_diff", (other, day), INT),
            Call("last_day", (day,), DATE),
        ]
    )


def test_formats(engines: Engines, seeds: Seeds) -> None:
    chance = random.Random(f"formats {seeds.one(0)}")
    moments = [m for m in random_moments(chance) if m is None or 1000 <= m.year <= 9999]
    engines.load([TIMESTAMP], [(value,) for value in moments])
    engines.agree([Call("date_format", (c0(TIMESTAMP), text(f)), STRING) for f in FORMATS])
    # Years of other lengths are written in other ways.
    engines.load([TIMESTAMP], [(moment(-62_000_000_000_000_001),)])
    with pytest.raises(duckdb.Error, match="Spark alone knows"):
        engines.duckdb(Call("date_format", (c0(TIMESTAMP), text("yyyy")), STRING))


def test_what_goes_by_the_time_zone_is_told() -> None:
    at, day = c0(TIMESTAMP), c0(DATE)

    def later(span: str) -> Expr:
        return Call("+", (at, Literal(span, INTERVAL)), TIMESTAMP)

    # A day later is the same time of day, be it 23 hours later.
    days = (later("1 day"), later("25 hours"), later("-1 days"))
    for expr in (Call("hour", (at,), INT), Cast(at, DATE), Cast(day, TIMESTAMP), *days):
        assert reads_clocks(to_sqlglot(expr))
    for expr in (Call("year", (day,), INT), later("23 hours"), later("59 minutes 2 seconds")):
        assert not reads_clocks(to_sqlglot(expr))


# --- texts ---------------------------------------------------------------------------------------

TEXTS = [
    "",
    " ",
    "a",
    "A b",
    " a\tb ",
    "aXbXc",
    "x/y//z",
    "éa日本",
    "😀b",
    "%_",
    "0123456789",
    None,
]
OF_TEXTS: list[Expr] = [
    *(Call(f, (c0(STRING),), STRING) for f in ("trim", "ltrim", "rtrim", "md5")),
    *(
        Call(f, (c0(STRING), number(place)), STRING)
        for f in ("substring", "substr")
        for place in (0, 1, 2, 9)
    ),
    *(
        Call("substring", (c0(STRING), number(place), number(count)), STRING)
        for place, count in product((0, 1, 3), (-1, 0, 1, 5))
    ),
    *(Call(f, (c0(STRING), number(n)), STRING) for f in ("left", "right") for n in (-1, 0, 2, 99)),
    *(
        Call(f, (c0(STRING), number(n), text(with_)), STRING)
        for f in ("lpad", "rpad")
        for n, with_ in ((0, "x"), (3, "é"), (8, "xy"))
    ),
    Call("lpad", (c0(STRING), number(4)), STRING),
    *(
        Call(f, (c0(STRING), Column("c1", STRING)), kind)
        for f, kind in (
            ("instr", INT),
            ("contains", BOOLEAN),
            ("startswith", BOOLEAN),
            ("endswith", BOOLEAN),
        )
    ),
    Call("replace", (c0(STRING), Column("c1", STRING), text("-")), STRING),
    *(
        Call("split_part", (c0(STRING), text(by), number(part)), STRING)
        for by in ("/", "X", "b")
        for part in (1, 2, 4, -1, -9)
    ),
    Call("concat_ws", (text("-"), c0(STRING), Column("c1", STRING)), STRING),
    Call("nvl", (c0(STRING), text("none")), STRING),
]
IN_ASCII = ("upper", "ucase", "lower", "lcase")


def test_texts(engines: Engines) -> None:
    engines.load([STRING, STRING], list(product(TEXTS, TEXTS)))
    engines.agree(OF_TEXTS)


def test_upper_and_lower_case(engines: Engines) -> None:
    ascii_texts = [t for t in TEXTS if t is None or t.isascii()]
    every = "".join(map(chr, range(1, 128)))
    engines.load([STRING], [(value,) for value in [*ascii_texts, every]])
    engines.agree([Call(f, (c0(STRING),), STRING) for f in IN_ASCII])
    engines.load([STRING], [("straße",)])
    with pytest.raises(duckdb.Error, match="Spark alone knows"):
        engines.duckdb(Call("upper", (c0(STRING),), STRING))


# --- regular expressions -------------------------------------------------------------------------

KNOWN_PATTERNS = (
    "(&|^)channel_id=([^&]*)",
    "a.*b",
    "^a|b$",
    r"\d{2,3}",
    r"(\w+)/(\w*)",
    "[A-Zé]+?",
    "x(?:y|yz)(z?)",
    r"\.",
    "$",
)
PIECES = ("a", "b", "X", "/", ".", r"\d", r"\w", "[ab]", "[^a/]", r"\.", "(a|b)", "(?:X|/)", "日")


def random_pattern(chance: random.Random) -> str:
    def sequence() -> str:
        return "".join(
            chance.choice(PIECES) + chance.choice(("", "", "", "*", "+", "?", "{1,2}", "*?", "+?"))
            for _ in range(chance.randrange(1, 4))
        )

    pattern = "|".join(sequence() for _ in range(chance.choice((1, 1, 2))))
    if chance.random() < 0.3:
        pattern = f"({pattern})"
    # With its end what may take a line break is left to Spark.
    end = "" if "[^" in pattern else chance.choice(("", "", "$"))
    return chance.choice(("", "", "^")) + pattern + end


def random_texts(chance: random.Random) -> list[str]:
    letters = ["a", "b", "X", "/", ".", "7", " ", "\n", "\r", "\u2028", "\u0085", "é", "日", "😀"]
    return ["".join(chance.choices(letters, k=chance.randrange(9))) for _ in range(60)]


def translated(exprs: list[Expr]) -> list[Expr]:
    able = []
    for expr in exprs:
        try:
            duckdb_expression(to_sqlglot(expr))
        except Untranslatable:
            continue
        able.append(expr)
    return able


def test_patterns(engines: Engines, seeds: Seeds) -> None:
    chance = random.Random(f"patterns {seeds.one(0)}")
    urls = ["https://x.y/a?channel_id=12&b=3", "channel_id=", "&channel_id=a\n", "ab\r\n", "12 345"]
    engines.load([STRING], [(t,) for t in [*EDGES[STRING], *TEXTS, *urls, *random_texts(chance)]])
    exprs: list[Expr] = []
    for pattern in (*KNOWN_PATTERNS, *(random_pattern(chance) for _ in range(60))):
        value, kind = (c0(STRING), text(pattern)), STRING
        exprs.append(Call("rlike", value, BOOLEAN))
        for group in range(read_pattern(pattern).groups + 1):
            exprs.append(Call("regexp_extract", (*value, number(group)), kind))
        exprs.append(Call("regexp_replace", (*value, text("<>")), kind))
    able = translated(exprs)
    assert {expr.function for expr in able if isinstance(expr, Call)} == {
        "rlike",
        *patterns.TRANSLATIONS,
    }
    assert len(able) > len(exprs) // 2
    engines.agree(able)


@pytest.mark.parametrize(
    "pattern",
    [
        r"a(?=b)",
        r"(a)\1",
        "a++",
        "(?i)a",
        r"\bA",
        r"\s",
        r"\p{L}",
        "(a*)*",
        "[a&&b]",
        "a{,2}",
        "(",
        "x{2000}",
        # Java's $ stands before a line break that the pattern may take, but not within \r\n.
        "a[^b]$",
        r"a\W$",
        r"(a$)\n",
        r"[\t ]$",
        "[ -\u2030]$",
    ],
)
def test_patterns_that_are_left_to_spark(pattern: str) -> None:
    with pytest.raises(Untranslatable):
        read_pattern(pattern)


# --- decimals, and choices among numbers ---------------------------------------------------------

SMALL, WIDE = decimal(10, 2), decimal(18, 6)


def random_decimals(chance: random.Random, kind: DataType) -> list[Decimal | None]:
    digits, scale = kind.decimal_parameters
    most = 10**digits - 1
    values = [0, 1, -1, most, -most, *(chance.randrange(-most, most) for _ in range(8))]
    return [Decimal(value).scaleb(-scale) for value in values] + [None]


def test_decimals(engines: Engines, seeds: Seeds) -> None:
    chance = random.Random(f"decimals {seeds.one(0)}")
    rows = list(product(random_decimals(chance, SMALL), random_decimals(chance, WIDE)))
    whole = [(chance.choice(EDGES[BIGINT]), chance.choice(EDGES[TINYINT])) for _ in rows]
    engines.load(
        [SMALL, WIDE, BIGINT, TINYINT], [(*one, *two) for one, two in zip(rows, whole, strict=True)]
    )
    small, wide = c0(SMALL), Column("c1", WIDE)
    big, tiny = Column("c2", BIGINT), Column("c3", TINYINT)
    share = Literal(Decimal("0.908"), decimal(3, 3))
    signs = ("=", "!=", "<", "<=", ">", ">=", "<=>")
    engines.agree(
        [
            *(Call(sign, (small, wide), decimal(19, 6)) for sign in ("+", "-")),
            Call("*", (small, wide), decimal(29, 8)),
            Call("*", (share, big), decimal(24, 3)),
            Call("-", (number(1), small), decimal(11, 2)),
            Call("+", (tiny, small), decimal(11, 2)),
            Call("*", (small, Call("-", (number(1), small), decimal(11, 2))), decimal(22, 4)),
            *(Call(sign, (small, wide), BOOLEAN) for sign in signs),
            *(Call(sign, (small, tiny), BOOLEAN) for sign in signs),
            Call(">", (big, small), BOOLEAN),
            Call("=", (wide, number(3)), BOOLEAN),
            Cast(small, decimal(18, 4)),
            Cast(big, decimal(20, 0)),
            Call("coalesce", (small, wide), WIDE),
            Call(
                "case", (Call(">", (small, number(0)), BOOLEAN), small, number(0)), decimal(12, 2)
            ),
        ]
    )


def test_choices_among_numbers(engines: Engines) -> None:
    rows = list(product(EDGES[INT], EDGES[BIGINT], EDGES[DOUBLE]))
    engines.load([INT, BIGINT, DOUBLE], rows)
    small, big, broken = c0(INT), Column("c1", BIGINT), Column("c2", DOUBLE)
    positive = Call(">", (small, number(0)), BOOLEAN)
    engines.agree(
        [
            Call("coalesce", (big, number(7)), BIGINT),
            Call("/", (broken, Literal(2.5, DOUBLE)), DOUBLE),
            Call("/", (big, Literal(-0.5, DOUBLE)), DOUBLE),
            Call("coalesce", (small, big, broken), DOUBLE),
            Call("case", (positive, small, big), BIGINT),
            Call("case", (positive, broken, number(0)), DOUBLE),
            Call("if", (positive, number(1), big), BIGINT),
            Call("least", (small, big), BIGINT),
            Call("greatest", (small, big, number(5)), BIGINT),
            Call("ifnull", (big, small), BIGINT),
        ]
    )


@pytest.mark.parametrize(
    "expr",
    [
        Call("*", (Column("x", decimal(30, 10)), Column("y", decimal(20, 5))), decimal(38, 12)),
        Call("/", (Column("x", SMALL), Column("y", SMALL)), decimal(23, 13)),
        Call("=", (Column("x", SMALL), Column("y", DOUBLE)), BOOLEAN),
        Call("/", (Column("x", DOUBLE), Literal(0.0, DOUBLE)), DOUBLE),
        Call("/", (Column("x", DOUBLE), Cast(text("none"), DOUBLE)), DOUBLE),
        Cast(Column("x", WIDE), SMALL),
        Call("substring", (Column("x", STRING), number(-2)), STRING),
        Call("date_format", (Column("x", TIMESTAMP), text("EEE")), STRING),
        Call("date_format", (Column("x", TIMESTAMP), Column("y", STRING)), STRING),
        Call("+", (Column("x", TIMESTAMP), Literal("1 month", INTERVAL)), TIMESTAMP),
        Call("hour", (Column("x", STRING),), INT),
        Call("coalesce", (Column("x", INT), Column("y", STRING)), STRING),
    ],
    ids=str,
)
def test_what_is_left_to_spark(expr: Expr) -> None:
    with pytest.raises(Untranslatable):
        duckdb_expression(to_sqlglot(expr))


def test_every_translation_is_tried() -> None:
    of_texts = {expr.function for expr in OF_TEXTS if isinstance(expr, Call)} | set(IN_ASCII)
    assert texts.TRANSLATIONS.keys() <= of_texts
    tried = {"coalesce", *of_texts, *calendars.TRANSLATIONS, *patterns.TRANSLATIONS}
    assert meanings._BY_ARGUMENTS.keys() <= tried
