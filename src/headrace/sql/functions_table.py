"""Spark's functions that Headrace knows: which arguments they take and which type comes out.

A signature is a string with a letter per argument: ``n`` number, ``v`` number or interval, ``i``
whole number, ``s`` string (other plain values are read as one), ``z`` string only, ``b`` boolean,
``t`` date or timestamp, ``a`` array, ``m`` map, ``o`` anything with an order, ``x`` anything;
arguments after ``?`` may be left out and a final ``*`` repeats the last one. A test asks Spark
itself for the type of every entry, so this table cannot drift from the Spark that runs.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    array,
)
from headrace.sql.function_rules import (
    Function,
    TypeRule,
    Types,
    Values,
    always,
    array_of_first_type,
    array_of_type,
    average_type,
    branches_type,
    ceiling_type,
    common_argument_type,
    concat_type,
    element_type,
    first_type,
    flatten_type,
    map_keys_type,
    map_of_type,
    map_values_type,
    number_type,
    operator_type,
    or_zero_type,
    padded_type,
    percentile_approx_type,
    percentile_type,
    reversed_type,
    round_type,
    shift_type,
    sum_type,
)
from headrace.sql.typing import common_type_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(*groups: tuple[str, str, TypeRule]) -> dict[str, Function]:
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
    (_DOUBLES, "n", always(DOUBLE)),
    ("atan2 hypot pow power", "nn", always(DOUBLE)),
    ("log", "n?n", always(DOUBLE)),
    ("pi e", "", always(DOUBLE)),
    ("abs negative positive", "n", number_type),
    ("ceil ceiling floor", "n", ceiling_type),
    ("round bround", "n?i", number_type),
    ("pmod mod", "nn", operator_type("%")),
    ("factorial", "i", always(BIGINT)),
    ("greatest least", "oo*", common_argument_type),
    ("shiftleft shiftright shiftrightunsigned", "ii", shift_type),
    ("bit_count", "i", always(INT)),
    ("bin", "i", always(STRING)),
    ("conv", "sii", always(STRING)),
    ("hex", "s", always(STRING)),
    ("unhex", "s", always(BINARY)),
    ("isnan", "n", always(BOOLEAN)),
    ("nanvl", "nn", always(DOUBLE)),
    ("width_bucket", "nnni", always(BIGINT)),
    # Conditions and NULLs
    ("coalesce nvl ifnull", "xx*", common_argument_type),
    ("nvl2", "xxx", branches_type),
    ("nullif nullifzero", "x?x", first_type),
    ("zeroifnull", "n", or_zero_type),
    ("if", "bxx", branches_type),
    ("isnull isnotnull", "x", always(BOOLEAN)),
    # Strings
    ("upper ucase lower lcase initcap", "s", always(STRING)),
    ("trim ltrim rtrim btrim", "s?s", always(STRING)),
    ("length len char_length character_length octet_length bit_length", "s", always(INT)),
    ("ascii", "s", always(INT)),
    ("char chr", "i", always(STRING)),
    ("concat", "x*", concat_type),
    ("concat_ws", "sx*", always(STRING)),
    ("substring substr", "si?i", padded_type),
    ("left right", "si", always(STRING)),
    ("substring_index", "ssi", always(STRING)),
    ("replace", "ss?s", always(STRING)),
    ("translate", "sss", always(STRING)),
    ("overlay", "ssi?i", always(STRING)),
    ("reverse", "x", reversed_type),
    ("repeat", "si", always(STRING)),
    ("lpad rpad", "si?s", padded_type),
    ("space", "i", always(STRING)),
    ("instr", "ss", always(INT)),
    ("locate position", "ss?i", always(INT)),
    ("split", "ss?i", always(array(STRING))),
    ("split_part", "ssi", always(STRING)),
    ("startswith endswith contains", "ss", always(BOOLEAN)),
    ("like ilike", "ss?s", always(BOOLEAN)),
    ("rlike regexp regexp_like", "ss", always(BOOLEAN)),
    ("regexp_extract", "ss?i", always(STRING)),
    ("regexp_extract_all", "ss?i", always(array(STRING))),
    ("regexp_replace", "sss?i", always(STRING)),
    ("regexp_count regexp_instr", "ss", always(INT)),
    ("regexp_substr", "ss", always(STRING)),
    ("levenshtein", "ss?i", always(INT)),
    ("soundex", "z", always(STRING)),
    ("format_number", "ns", always(STRING)),
    ("format_string printf", "sx*", always(STRING)),
    ("base64", "z", always(STRING)),
    ("unbase64", "s", always(BINARY)),
    ("encode", "ss", always(BINARY)),
    ("find_in_set", "ss", always(INT)),
    ("elt", "ix*", lambda types: common_type_of(types[1:])),
    ("parse_url", "zz?z", always(STRING)),
    ("url_decode url_encode", "s", always(STRING)),
    ("get_json_object", "zz", always(STRING)),
    ("json_array_length", "z", always(INT)),
    ("to_char to_varchar", "xs", always(STRING)),
    # Dates and times
    ("year quarter month day dayofmonth dayofweek dayofyear weekofyear weekday", "t", always(INT)),
    ("hour minute second", "t", always(INT)),
    ("date_add date_sub dateadd", "ti", always(DATE)),
    ("datediff date_diff", "tt", always(INT)),
    ("add_months", "ti", always(DATE)),
    ("months_between", "tt?b", always(DOUBLE)),
    ("last_day", "t", always(DATE)),
    ("next_day", "ts", always(DATE)),
    ("trunc", "ts", always(DATE)),
    ("date_trunc", "st", always(TIMESTAMP)),
    ("to_date try_to_date", "x?s", always(DATE)),
    ("to_timestamp try_to_timestamp", "x?s", always(TIMESTAMP)),
    ("date_format", "ts", always(STRING)),
    ("from_unixtime", "n?s", always(STRING)),
    ("unix_timestamp to_unix_timestamp", "t?s", always(BIGINT)),
    ("unix_seconds unix_millis unix_micros", "t", always(BIGINT)),
    ("unix_date", "t", always(INT)),
    ("timestamp_seconds timestamp_millis timestamp_micros", "n", always(TIMESTAMP)),
    ("date_from_unix_date", "i", always(DATE)),
    ("make_date", "iii", always(DATE)),
    ("make_timestamp", "iiiiin?s", always(TIMESTAMP)),
    ("make_dt_interval", "?iiin", always(INTERVAL)),
    ("from_utc_timestamp to_utc_timestamp", "ts", always(TIMESTAMP)),
    ("dayname monthname", "t", always(STRING)),
    ("window_time", "x", always(TIMESTAMP)),
    # Casts that are spelled as functions
    ("boolean", "x", always(BOOLEAN)),
    ("tinyint", "x", always(TINYINT)),
    ("smallint", "x", always(SMALLINT)),
    ("int", "x", always(INT)),
    ("bigint", "x", always(BIGINT)),
    ("float", "x", always(DataType("float"))),
    ("double", "x", always(DOUBLE)),
    ("string", "x", always(STRING)),
    ("binary", "x", always(BINARY)),
    ("date", "x", always(DATE)),
    ("timestamp", "x", always(TIMESTAMP)),
    # Hashes
    ("hash", "x*", always(INT)),
    ("xxhash64", "x*", always(BIGINT)),
    ("md5 sha sha1", "z", always(STRING)),
    ("sha2", "zi", always(STRING)),
    ("crc32", "z", always(BIGINT)),
    # Arrays and maps
    ("array", "?x*", array_of_type),
    ("size cardinality array_size", "x", always(INT)),
    ("array_contains", "ax", always(BOOLEAN)),
    ("array_position", "ax", always(BIGINT)),
    ("array_distinct array_sort array_compact", "a", first_type),
    ("sort_array", "a?b", first_type),
    ("array_max array_min", "a", element_type),
    ("array_join", "as?s", always(STRING)),
    ("array_union array_intersect array_except", "aa", common_argument_type),
    ("arrays_overlap", "aa", always(BOOLEAN)),
    ("array_append array_prepend array_remove", "ax", first_type),
    ("array_repeat", "xi", array_of_first_type),
    ("slice", "aii", first_type),
    ("element_at try_element_at", "xx", element_type),
    ("get", "ai", element_type),
    ("flatten", "a", flatten_type),
    ("map", "?x*", map_of_type),
    ("map_keys", "m", map_keys_type),
    ("map_values", "m", map_values_type),
    ("map_contains_key", "mx", always(BOOLEAN)),
    # Arithmetic that gives NULL instead of an error
    ("try_divide", "xx", operator_type("/")),
    ("typeof", "x", always(STRING)),
)

#: Rules that need the value of a constant, not its type alone.
LITERAL_RULES: dict[str, Callable[[Types, Values], DataType]] = {
    "round": round_type,
    "bround": round_type,
}

AGGREGATES: dict[str, Function] = _table(
    ("count", "?x*", always(BIGINT)),
    ("sum", "v", sum_type),
    ("avg", "v", average_type),
    ("min max", "o", first_type),
    ("stddev stddev_pop variance var_pop", "n", always(DOUBLE)),
    ("skewness kurtosis", "n", always(DOUBLE)),
    ("corr covar_pop covar_samp", "nn", always(DOUBLE)),
    ("count_if", "b", always(BIGINT)),
    ("bool_and bool_or", "b", always(BOOLEAN)),
    ("bit_and bit_or bit_xor", "i", first_type),
    ("median", "n", always(DOUBLE)),
    ("mode", "o", first_type),
    ("percentile", "nx?i", percentile_type),
    ("percentile_approx", "nx?i", percentile_approx_type),
    ("approx_count_distinct", "x?n", always(BIGINT)),
    ("collect_list collect_set", "x", array_of_first_type),
    ("max_by min_by", "xo", first_type),
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
    | {"approx_count_distinct"}
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

#: What EXTRACT and date_part take out of a time or an interval, in all of Spark's spellings.
DATE_FIELDS = _words(
    "YEAR Y YEARS YR YRS YEAROFWEEK QUARTER QTR MONTH MON MONS MONTHS WEEK W WEEKS "
    "DAY D DAYS DAYOFWEEK DOW DAYOFWEEK_ISO DOW_ISO DOY HOUR H HOURS HR HRS "
    "MINUTE M MIN MINS MINUTES SECOND S SEC SECONDS SECS"
)

_NO_TIME = "use the stream's time column, or the end of its window"
_NO_CHANCE = "compute it before the stream is registered, or use a hash of the row's columns"

#: Functions that a replay would not repeat, and what to use instead.
NONDETERMINISTIC = {
    **dict.fromkeys(
        _words(
            "now current_timestamp current_date curdate current_time localtime localtimestamp "
            "sysdate getdate"
        ),
        _NO_TIME,
    ),
    **dict.fromkeys(
        _words(
            "rand random randn randstr uniform uuid shuffle monotonically_increasing_id "
            "spark_partition_id input_file_name input_file_block_start input_file_block_length "
            "current_user session_user user current_database current_schema current_catalog "
            "current_path current_timezone version reflect java_method try_reflect "
            # Spark calls it deterministic, but it draws a random vector to begin with.
            "aes_encrypt"
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
