"""Functions of text that mean the same in Spark and in DuckDB.

Upper and lower case are left to Spark for texts outside of ASCII, of which the engines' tables of
letters differ; so is what the two say of places before a text begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from headrace.engine.execution.duckdb.untranslatable import (
    Untranslatable,
    constant_number,
    constant_text,
    where_proven,
)
from headrace.sql.render import type_of

Arguments = list[str]
Translation = Callable[[Sequence[exp.Expr], Arguments], str]


def _require_texts(nodes: Sequence[exp.Expr], function: str) -> None:
    for node in nodes:
        kind = type_of(node)
        if kind is None or kind.name != "string":
            raise Untranslatable(f"{function} of a {kind}")


def _of_texts(form: str, function: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        _require_texts(nodes, function)
        if len(texts) != form.count("{"):
            raise Untranslatable(f"{function} of {len(texts)} arguments")
        return form.format(*texts)

    return translated


def _in_ascii(function: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        _require_texts(nodes, function)
        (text,) = texts
        return where_proven(f"strlen({text}) = length({text})", f"{function}({text})")

    return translated


def _trimmed(function: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        _require_texts(nodes, function)
        if len(texts) != 1:
            raise Untranslatable(f"{function} of given characters")
        # Spark takes off spaces and nothing else.
        return f"{function}({texts[0]}, ' ')"

    return translated


def _substring(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    _require_texts(nodes[:1], "substring")
    start = constant_number(nodes[1], "a place")
    if start < 0:
        raise Untranslatable("a place from the end of a text")
    if len(nodes) == 2:
        return f"substring({texts[0]}, {max(start, 1)})"
    count = max(constant_number(nodes[2], "a length"), 0)
    return f"substring({texts[0]}, {max(start, 1)}, {count})"


def _end_of(function: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        _require_texts(nodes[:1], function)
        count = max(constant_number(nodes[1], "a length"), 0)
        return f"{function}({texts[0]}, {count})"

    return translated


def _padded(function: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        _require_texts(nodes[:1], function)
        count = max(constant_number(nodes[1], "a length"), 0)
        if len(nodes) == 3 and not constant_text(nodes[2], "a padding"):
            raise Untranslatable("an empty padding")
        padding = texts[2] if len(texts) == 3 else "' '"
        return f"{function}({texts[0]}, {count}, {padding})"

    return translated


def _replaced(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    _require_texts(nodes, "replace")
    if len(nodes) != 3:
        raise Untranslatable("replace without a replacement")
    return f"replace({', '.join(texts)})"


def _split_part(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    _require_texts(nodes[:2], "split_part")
    part = constant_number(nodes[2], "a part")
    if not constant_text(nodes[1], "a delimiter") or not part:
        raise Untranslatable("a part that Spark refuses, or an empty delimiter")
    return f"split_part({texts[0]}, {texts[1]}, {part})"


def _joined(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    _require_texts(nodes, "concat_ws")
    if len(texts) < 2:
        raise Untranslatable("concat_ws of nothing but what stands between")
    return f"concat_ws({', '.join(texts)})"


TRANSLATIONS: dict[str, Translation] = {
    **dict.fromkeys(("upper", "ucase"), _in_ascii("upper")),
    **dict.fromkeys(("lower", "lcase"), _in_ascii("lower")),
    "trim": _trimmed("trim"),
    "ltrim": _trimmed("ltrim"),
    "rtrim": _trimmed("rtrim"),
    **dict.fromkeys(("substring", "substr"), _substring),
    "left": _end_of("left"),
    "right": _end_of("right"),
    "lpad": _padded("lpad"),
    "rpad": _padded("rpad"),
    "instr": _of_texts("CAST(instr({}, {}) AS INTEGER)", "instr"),
    "contains": _of_texts("contains({}, {})", "contains"),
    "startswith": _of_texts("starts_with({}, {})", "startswith"),
    "endswith": _of_texts("suffix({}, {})", "endswith"),
    "replace": _replaced,
    "split_part": _split_part,
    "concat_ws": _joined,
    "md5": _of_texts("md5({})", "md5"),
}
