"""Spark's functions that Headrace knows: which arguments they take and which type comes out.

A signature is a string with a letter per argument: ``n`` number, ``v`` number or interval, ``i``
whole number, ``s`` string (other plain values are read as one), ``z`` string only, ``b`` boolean,
``t`` date or timestamp, ``a`` array, ``m`` map, ``o`` anything with an order, ``x`` anything;
arguments after ``?`` may be left out and a final ``*`` repeats the last one. A test asks Spark
itself for the type of every entry, so this table cannot drift from the Spark that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    INTERVAL_MONTHS,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    array,
    decimal,
)
from headrace.sql.typing import (
    CoercionError,
    arithmetic_type,
    common_type_of,
    is_atomic,
    is_temporal,
)

Types = tuple[DataType, ...]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


Rule = Callable[[Types], DataType]

_KINDS: dict[str, tuple[str, Callable[[DataType], bool]]] = {
    "n": ("a number", lambda t: t.is_numeric or t == STRING),
    "v": ("a number or an interval", lambda t: t.is_numeric or t.is_interval or t == STRING),
    "i": ("a whole number", lambda t: t.is_numeric or t == STRING),
    "s": ("a string", lambda t: is_atomic(t) and not t.is_interval),
    "z": ("a string", lambda t: t in (STRING, BINARY)),
    "b": ("a condition", lambda t: t in (BOOLEAN, STRING)),
    "t": ("a date or timestamp", lambda t: is_temporal(t) or t == STRING),
    "a": ("an array", lambda t: t.name.startswith("array<")),
    "m": ("a map", lambda t: t.name.startswith("map<")),
    "o": ("something that can be ordered", lambda t: not t.name.startswith("map<")),
    "x": ("anything", lambda t: True),
}


@dataclass(frozen=True)
class Function:
    """A function's signature and the rule for its type."""

    name: str
    signature: str
    rule: Rule

    @property
    def required(self) -> int:
        return len(self.signature.rstrip("*").split("?")[0])

    @property
    def most(self) -> int | None:
        """How many arguments at most; None is without limit."""
        return None if self.signature.endswith("*") else len(self.signature.replace("?", ""))

    @property
    def expected(self) -> str:
        """How many arguments it takes, in words."""
        if self.most is None:
            return f"at least {self.required} argument{'s'[: self.required != 1]}"
        if self.most == self.required:
            return f"{self.most} argument{'s'[: self.most != 1]}"
        return f"{self.required} to {self.most} arguments"

    def type_of(self, types: Types) -> DataType:
        """The type of a call with arguments of these types; CoercionError if they do not fit."""
        letters = self.signature.replace("?", "").rstrip("*")
        for index, kind in enumerate(types):
            letter = letters[min(index, len(letters) - 1)]
            wanted, fits = _KINDS[letter]
            if kind != NULL and not fits(kind):
                raise CoercionError(
                    f"argument {index + 1} of {self.name}() must be {wanted}, not {kind}"
                )
        return self.rule(types)


def _always(kind: DataType) -> Rule:
    return lambda types: kind


def _first(types: Types) -> DataType:
    return types[0]


def _second(types: Types) -> DataType:
    return types[1]


def _common(types: Types) -> DataType:
    return common_type_of(types)


def _number(types: Types) -> DataType:
    """The argument's own number type; a string is read as a double."""
    return DOUBLE if types[0] in (STRING, NULL) else types[0]


def _if(types: Types) -> DataType:
    return common_type_of(types[1:])


def _nvl2(types: Types) -> DataType:
    return common_type_of(types[1:])


def _ceiling(types: Types) -> DataType:
    """ceil and floor: whole numbers, as decimals where the argument is one."""
    if not types[0].is_decimal:
        return BIGINT
    precision, scale = types[0].decimal_parameters
    return decimal(precision - scale + 1, 0) if scale else decimal(precision, 0)


def _operator(operator: str) -> Rule:
    """The type of an arithmetic operator that is spelled as a function."""
    return lambda types: arithmetic_type(operator, types[0], types[1])


def _or_zero(types: Types) -> DataType:
    return common_type_of((types[0], INT))


def _shift(types: Types) -> DataType:
    return BIGINT if types[0] == BIGINT else INT


def _bits(types: Types) -> DataType:
    return common_type_of(types)


def _element(types: Types) -> DataType:
    return types[0].element()


def _array_of(types: Types) -> DataType:
    return array(common_type_of(types) if types else NULL)


def _map_of(types: Types) -> DataType:
    keys, values = common_type_of(types[0::2]), common_type_of(types[1::2])
    return DataType(f"map<{keys},{values}>")


def _map_keys(types: Types) -> DataType:
    inner = types[0].name[len("map<") : -1]
    value = types[0].element().name
    return array(DataType(inner[: -len(value) - 1]))


def _map_values(types: Types) -> DataType:
    return array(types[0].element())


def _concat(types: Types) -> DataType:
    if types and all(t.name.startswith("array<") for t in types):
        return common_type_of(types)
    for kind in types:
        if not is_atomic(kind):
            raise CoercionError(f"concat takes strings, or arrays alone, not {kind}")
    return BINARY if types and all(t == BINARY for t in types) else STRING


def _flatten(types: Types) -> DataType:
    return types[0].element()


def _padded(types: Types) -> DataType:
    return BINARY if types[0] == BINARY else STRING


def _reversed(types: Types) -> DataType:
    return types[0] if types[0].name.startswith("array<") else STRING


def _sum(types: Types) -> DataType:
    kind = types[0]
    if kind.is_decimal:
        precision, scale = kind.decimal_parameters
        return DataType(f"decimal({min(precision + 10, 38)},{scale})")
    if kind.is_integer:
        return BIGINT
    if kind.is_interval:
        return INTERVAL_MONTHS if "month" in kind.name or "year" in kind.name else INTERVAL
    return DOUBLE


def _average(types: Types) -> DataType:
    kind = types[0]
    if kind.is_decimal:
        precision, scale = kind.decimal_parameters
        return DataType(f"decimal({min(precision + 4, 38)},{min(scale + 4, 38)})")
    return DOUBLE


def _array_of_first(types: Types) -> DataType:
    return array(types[0])


def _percentile(types: Types) -> DataType:
    return array(DOUBLE) if types[1].name.startswith("array<") else DOUBLE


def _percentile_approx(types: Types) -> DataType:
    return array(types[0]) if types[1].name.startswith("array<") else types[0]


def _table(*groups: tuple[str, str, Rule]) -> dict[str, Function]:
    return {
        name: Function(name, signature, rule)
        for names, signature, rule in groups
        for name in names.split()
    }


_DOUBLES = (
    "acos acosh asin asinh atan atanh cbrt cos cosh cot csc degrees exp expm1 ln log10 log1p log2 "
    "radians rint sec signum sign sin sinh sqrt tan tanh"
)

SCALARS: dict[str, Function] = _table(
    # Numbers
    (_DOUBLES, "n", _always(DOUBLE)),
    ("atan2 hypot pow power", "nn", _always(DOUBLE)),
    ("log", "n?n", _always(DOUBLE)),
    ("pi e", "", _always(DOUBLE)),
    ("abs negative positive", "n", _number),
    ("ceil ceiling floor", "n", _ceiling),
    ("round bround", "n?i", _number),
    ("pmod mod", "nn", _operator("%")),
    ("factorial", "i", _always(BIGINT)),
    ("greatest least", "oo*", _common),
    ("shiftleft shiftright shiftrightunsigned", "ii", _shift),
    ("bit_count", "i", _always(INT)),
    ("bin", "i", _always(STRING)),
    ("conv", "sii", _always(STRING)),
    ("hex", "s", _always(STRING)),
    ("unhex", "s", _always(BINARY)),
    ("isnan", "n", _always(BOOLEAN)),
    ("nanvl", "nn", _always(DOUBLE)),
    ("width_bucket", "nnni", _always(BIGINT)),
    # Conditions and NULLs
    ("coalesce nvl ifnull", "xx*", _common),
    ("nvl2", "xxx", _nvl2),
    ("nullif nullifzero", "x?x", _first),
    ("zeroifnull", "n", _or_zero),
    ("if", "bxx", _if),
    ("isnull isnotnull", "x", _always(BOOLEAN)),
    # Strings
    ("upper ucase lower lcase initcap", "s", _always(STRING)),
    ("trim ltrim rtrim btrim", "s?s", _always(STRING)),
    ("length len char_length character_length octet_length bit_length", "s", _always(INT)),
    ("ascii", "s", _always(INT)),
    ("char chr", "i", _always(STRING)),
    ("concat", "x*", _concat),
    ("concat_ws", "sx*", _always(STRING)),
    ("substring substr", "si?i", _padded),
    ("left right", "si", _always(STRING)),
    ("substring_index", "ssi", _always(STRING)),
    ("replace", "ss?s", _always(STRING)),
    ("translate", "sss", _always(STRING)),
    ("overlay", "ssi?i", _always(STRING)),
    ("reverse", "x", _reversed),
    ("repeat", "si", _always(STRING)),
    ("lpad rpad", "si?s", _padded),
    ("space", "i", _always(STRING)),
    ("instr", "ss", _always(INT)),
    ("locate position", "ss?i", _always(INT)),
    ("split", "ss?i", _always(array(STRING))),
    ("split_part", "ssi", _always(STRING)),
    ("startswith endswith contains", "ss", _always(BOOLEAN)),
    ("like ilike", "ss?s", _always(BOOLEAN)),
    ("rlike regexp regexp_like", "ss", _always(BOOLEAN)),
    ("regexp_extract", "ss?i", _always(STRING)),
    ("regexp_extract_all", "ss?i", _always(array(STRING))),
    ("regexp_replace", "sss?i", _always(STRING)),
    ("regexp_count regexp_instr", "ss", _always(INT)),
    ("regexp_substr", "ss", _always(STRING)),
    ("levenshtein", "ss?i", _always(INT)),
    ("soundex", "z", _always(STRING)),
    ("format_number", "ns", _always(STRING)),
    ("format_string printf", "sx*", _always(STRING)),
    ("base64", "z", _always(STRING)),
    ("unbase64", "s", _always(BINARY)),
    ("encode", "ss", _always(BINARY)),
    ("find_in_set", "ss", _always(INT)),
    ("elt", "ix*", lambda types: common_type_of(types[1:])),
    ("parse_url", "zz?z", _always(STRING)),
    ("url_decode url_encode", "s", _always(STRING)),
    ("get_json_object", "zz", _always(STRING)),
    ("json_array_length", "z", _always(INT)),
    ("to_char to_varchar", "xs", _always(STRING)),
    # Dates and times
    ("year quarter month day dayofmonth dayofweek dayofyear weekofyear weekday", "t", _always(INT)),
    ("hour minute second", "t", _always(INT)),
    ("date_add date_sub dateadd", "ti", _always(DATE)),
    ("datediff date_diff", "tt", _always(INT)),
    ("add_months", "ti", _always(DATE)),
    ("months_between", "tt?b", _always(DOUBLE)),
    ("last_day", "t", _always(DATE)),
    ("next_day", "ts", _always(DATE)),
    ("trunc", "ts", _always(DATE)),
    ("date_trunc", "st", _always(TIMESTAMP)),
    ("to_date try_to_date", "x?s", _always(DATE)),
    ("to_timestamp try_to_timestamp", "x?s", _always(TIMESTAMP)),
    ("date_format", "ts", _always(STRING)),
    ("from_unixtime", "n?s", _always(STRING)),
    ("unix_timestamp to_unix_timestamp", "t?s", _always(BIGINT)),
    ("unix_seconds unix_millis unix_micros", "t", _always(BIGINT)),
    ("unix_date", "t", _always(INT)),
    ("timestamp_seconds timestamp_millis timestamp_micros", "n", _always(TIMESTAMP)),
    ("date_from_unix_date", "i", _always(DATE)),
    ("make_date", "iii", _always(DATE)),
    ("make_timestamp", "iiiiin?s", _always(TIMESTAMP)),
    ("make_dt_interval", "?iiin", _always(INTERVAL)),
    ("from_utc_timestamp to_utc_timestamp", "ts", _always(TIMESTAMP)),
    ("dayname monthname", "t", _always(STRING)),
    ("window_time", "x", _always(TIMESTAMP)),
    # Casts that are spelled as functions
    ("boolean", "x", _always(BOOLEAN)),
    ("tinyint", "x", _always(TINYINT)),
    ("smallint", "x", _always(SMALLINT)),
    ("int", "x", _always(INT)),
    ("bigint", "x", _always(BIGINT)),
    ("float", "x", _always(DataType("float"))),
    ("double", "x", _always(DOUBLE)),
    ("string", "x", _always(STRING)),
    ("binary", "x", _always(BINARY)),
    ("date", "x", _always(DATE)),
    ("timestamp", "x", _always(TIMESTAMP)),
    # Hashes
    ("hash", "x*", _always(INT)),
    ("xxhash64", "x*", _always(BIGINT)),
    ("md5 sha sha1", "z", _always(STRING)),
    ("sha2", "zi", _always(STRING)),
    ("crc32", "z", _always(BIGINT)),
    # Arrays and maps
    ("array", "?x*", _array_of),
    ("size cardinality array_size", "x", _always(INT)),
    ("array_contains", "ax", _always(BOOLEAN)),
    ("array_position", "ax", _always(BIGINT)),
    ("array_distinct array_sort array_compact", "a", _first),
    ("sort_array", "a?b", _first),
    ("array_max array_min", "a", _element),
    ("array_join", "as?s", _always(STRING)),
    ("array_union array_intersect array_except", "aa", _common),
    ("arrays_overlap", "aa", _always(BOOLEAN)),
    ("array_append array_prepend array_remove", "ax", _first),
    ("array_repeat", "xi", _array_of_first),
    ("slice", "aii", _first),
    ("element_at try_element_at", "xx", _element),
    ("get", "ai", _element),
    ("flatten", "a", _flatten),
    ("map", "?x*", _map_of),
    ("map_keys", "m", _map_keys),
    ("map_values", "m", _map_values),
    ("map_contains_key", "mx", _always(BOOLEAN)),
    # Arithmetic that gives NULL instead of an error
    ("try_divide", "xx", _operator("/")),
    ("typeof", "x", _always(STRING)),
)

Values = tuple[object, ...]


def _round(types: Types, values: Values) -> DataType:
    """round and bround of a decimal keep as many digits as the second argument says."""
    kind = _number(types)
    if not kind.is_decimal:
        return kind
    precision, scale = kind.decimal_parameters
    places = values[1] if len(values) > 1 else 0
    if not isinstance(places, int):
        raise CoercionError("the number of places must be a constant")
    if places < 0:
        return decimal(max(precision - scale + 1, -places + 1), 0)
    kept = min(scale, places)
    return decimal(precision - scale + 1 + kept, kept)


#: Rules that need the value of a constant, not its type alone.
LITERAL_RULES: dict[str, Callable[[Types, Values], DataType]] = {
    "round": _round,
    "bround": _round,
}

AGGREGATES: dict[str, Function] = _table(
    ("count", "?x*", _always(BIGINT)),
    ("sum", "v", _sum),
    ("avg", "v", _average),
    ("min max", "o", _first),
    ("stddev stddev_pop variance var_pop", "n", _always(DOUBLE)),
    ("skewness kurtosis", "n", _always(DOUBLE)),
    ("corr covar_pop covar_samp", "nn", _always(DOUBLE)),
    ("count_if", "b", _always(BIGINT)),
    ("bool_and bool_or", "b", _always(BOOLEAN)),
    ("bit_and bit_or bit_xor", "i", _first),
    ("median", "n", _always(DOUBLE)),
    ("mode", "o", _first),
    ("percentile", "nx?i", _percentile),
    ("percentile_approx", "nx?i", _percentile_approx),
    ("approx_count_distinct", "x?n", _always(BIGINT)),
    ("collect_list collect_set", "x", _array_of_first),
    ("max_by min_by", "xo", _first),
)

#: Other spellings of the same aggregate; the plan holds one, so that equal queries are equal.
AGGREGATE_SYNONYMS = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "approx_percentile": "percentile_approx",
    "array_agg": "collect_list",
}

#: Aggregates for which DISTINCT changes nothing.
DISTINCT_CHANGES_NOTHING = frozenset(
    {"min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "collect_set"}
)

#: Aggregates whose answer depends on the order of rows, and what says the order.
ORDER_DEPENDENT = {
    "first": "min_by(value, time)",
    "first_value": "min_by(value, time)",
    "last": "max_by(value, time)",
    "last_value": "max_by(value, time)",
    "any_value": "min(value) or max_by(value, time)",
    "listagg": "concat_ws(',', sort_array(collect_list(value)))",
    "string_agg": "concat_ws(',', sort_array(collect_list(value)))",
}

#: Aggregates of Spark that Headrace does not compute.
OTHER_AGGREGATES = _words(
    "approx_top_k bitmap_construct_agg bitmap_or_agg bitmap_and_agg count_min_sketch "
    "grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg percentile_cont "
    "percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope "
    "regr_sxx regr_sxy regr_syy schema_of_variant_agg theta_sketch_agg theta_union_agg "
    "try_avg try_sum kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float "
    "measure"
)

_NO_TIME = "use the stream's time column, or the end of its window"
_NO_CHANCE = "compute it before the stream is registered, or use a hash of the row's columns"

#: Functions that a replay would not repeat, and what to use instead.
NONDETERMINISTIC = {
    **dict.fromkeys(
        _words("now current_timestamp current_date curdate current_time localtimestamp"), _NO_TIME
    ),
    **dict.fromkeys(
        _words(
            "rand random randn randstr uniform uuid shuffle monotonically_increasing_id "
            "spark_partition_id input_file_name input_file_block_start input_file_block_length "
            "current_user session_user user current_database current_schema current_catalog "
            "current_timezone version reflect java_method try_reflect"
        ),
        _NO_CHANCE,
    ),
}

#: Functions that make several rows of one.
GENERATORS = _words(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack "
    "json_tuple variant_explode variant_explode_outer sql_keywords collations"
)

#: Functions that only mean something with OVER.
RANKING = _words("row_number rank dense_rank percent_rank ntile cume_dist lag lead nth_value")

#: The functions that make windows.
WINDOW_FUNCTIONS = frozenset({"window", "windows", "session_window", "trailing", "landmark"})


def callable_names() -> frozenset[str]:
    """The functions and aggregates, without those that make windows."""
    return frozenset({*SCALARS, *AGGREGATES, *AGGREGATE_SYNONYMS})


def known_names() -> list[str]:
    """All function names, for advice on misspelt ones."""
    return sorted(callable_names() | WINDOW_FUNCTIONS)
