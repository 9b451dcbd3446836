"""What comes of statements, on the screen: tables for things and rows, text for plans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from headrace.cli.console import note, out

#: What SHOW tells of each kind; everything else is told by DESCRIBE.
_SHOWN = {
    "stream": ("name", "format", "path", "time", "delay", "owner"),
    "table": ("name", "format", "path", "owner"),
    "view": ("name", "sql", "owner"),
    "query": ("name", "state", "sink", "rows", "watermark", "owner", "tags"),
}


def print_answer(answer: dict[str, Any]) -> None:
    """One answer, whatever it is about."""
    things = answer["things"]
    if answer["text"] is not None:
        out.print(Text(str(answer["text"])), soft_wrap=True)
    elif len(things) == 1 and "columns" in things[0]:
        _print_described(things[0])
    elif things and not answer["message"]:
        out.print(rows_table([_short(thing) for thing in things]))
    elif not answer["message"]:
        note("nothing")
    if answer["message"]:
        note(answer["message"])


def rows_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Rows of the same columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in rows[0] if rows else ():
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        table.add_column(str(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row.values()))
    return table


def cell(value: Any) -> str:
    """A value in a table; a window as its two ends."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict) and value.keys() == {"start", "end"}:
        return f"{value['start']} – {value['end']}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return " ".join(str(value).split()) if isinstance(value, str) else str(value)


def _short(thing: dict[str, Any]) -> dict[str, Any]:
    """A thing in one line of SHOW; a row of results stays as it is."""
    shown = _SHOWN.get(str(thing.get("kind")))
    if shown is None or "owner" not in thing:
        return thing
    progress = thing.get("progress") or {}
    sink = thing.get("sink") or {}
    more = {
        "rows": progress.get("totalOutputRows"),
        "watermark": progress.get("watermark"),
        "sink": sink.get("path") or sink.get("format"),
        "tags": ", ".join(thing.get("tags", ())),
    }
    return {key: more.get(key, thing.get(key)) for key in shown}


def _print_described(thing: dict[str, Any]) -> None:
    for key, value in thing.items():
        if key != "columns" and value not in (None, "", [], {}):
            out.print(Text.assemble((f"{key}: ", "bold"), cell(value)), soft_wrap=True)
    out.print(rows_table(thing["columns"]))
