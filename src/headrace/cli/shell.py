"""The prompt of ``headrace sql``: lines up to a semicolon, with history and completion."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.cli.answers import print_answer, rows_table
from headrace.cli.console import err, note, out, print_error
from headrace.cli.speakers import Speaker
from headrace.errors import HeadraceError
from headrace.redaction import looks_secret
from headrace.statements.words import split

WORDS = (
    "CREATE STREAM",
    "CREATE TABLE",
    "CREATE VIEW",
    "CREATE QUERY",
    "INSERT INTO",
    "DROP",
    "PAUSE",
    "RESUME",
    "FROM NOW",
    "SHOW STREAMS",
    "SHOW TABLES",
    "SHOW VIEWS",
    "SHOW QUERIES",
    "SHOW RESULTS",
    "DESCRIBE",
    "EXPLAIN",
    "EXPLAIN COST",
    "EXPLAIN ALTERNATIVES",
    "EXPLAIN ANALYZE",
    "SELECT",
    "WITH",
    "FROM",
    "WHERE",
    "GROUP BY",
    "JOIN",
    "WATCH",
    "EXIT",
)
_HELP = "statements end with ;   WATCH name; shows results as they come   EXIT; leaves"
_EVERY = 1.0


def run_shell(speaker: Speaker, where: str) -> None:
    """Read and do statements until somebody leaves."""
    note(f"{where}; {_HELP}")
    read = _reader(speaker)
    for text in _statements(read):
        word = text.split(None, 1)[0].upper() if text.split() else ""
        if word in ("EXIT", "QUIT"):
            return
        try:
            if word == "WATCH":
                _watch(speaker, text.split(None, 1)[1] if " " in text else "")
            else:
                with err.status("…"):
                    answer = speaker.do(text)
                print_answer(answer)
        except KeyboardInterrupt:
            note("interrupted; what was asked for may still be done")
        except HeadraceError as error:
            print_error(error)
        except Exception as error:
            # Spark's, most often: the shell goes on.
            print_error(error)


def _statements(read: Callable[[str], str]) -> Iterator[str]:
    """What is typed, statement by statement."""
    typed = ""
    while True:
        try:
            typed += read("headrace> " if not typed else "      ... ") + "\n"
        except KeyboardInterrupt:
            typed = ""
            continue
        except EOFError:
            return
        complete, typed = complete_statements(typed)
        yield from complete


def complete_statements(typed: str) -> tuple[list[str], str]:
    """The statements of a text that a semicolon ends, and the rest.

    >>> complete_statements("SHOW QUERIES; SELECT ';' ")
    (['SHOW QUERIES'], "SELECT ';' ")
    """
    if not typed.strip():
        return [], ""
    try:
        statements = list(split(typed))
    except HeadraceError:
        # A quote that is still open.
        return [], typed
    complete: list[str] = []
    for statement in statements:
        begin, end = statement.tokens[0].start, statement.tokens[-1].end + 1
        if not _ends_with_semicolon(typed[end:]):
            return complete, typed[begin:]
        complete.append(typed[begin:end])
    return complete, ""


def _ends_with_semicolon(rest: str) -> bool:
    """Whether the next thing in a text is a semicolon, or a comment and then one."""
    without_comments = re.sub(r"--[^\n]*|/\*.*?\*/", "", rest, flags=re.DOTALL)
    return without_comments.lstrip().startswith(";")


def _watch(speaker: Speaker, name: str) -> None:
    """The newest results, again and again, until Ctrl-C."""
    from rich.live import Live

    statement = f"SHOW RESULTS {name.strip().rstrip(';')} LIMIT 20"
    with suppress(KeyboardInterrupt), Live(console=out, refresh_per_second=4) as live:
        while True:
            live.update(rows_table(speaker.do(statement)["things"]))
            time.sleep(_EVERY)


def _reader(speaker: Speaker) -> Callable[[str], str]:
    """What reads a line: with history and completion where prompt_toolkit is there."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import FileHistory
    except ImportError:
        return input

    class _Completer(Completer):
        """Words of the grammar, and names of what is there."""

        def get_completions(self, document: Any, event: Any) -> Iterable[Completion]:
            begun = document.get_word_before_cursor()
            if begun:
                for word in (*WORDS, *speaker.names()):
                    if word.lower().startswith(begun.lower()):
                        yield Completion(word, start_position=-len(begun))

    class _History(FileHistory):
        """What looks like a secret is not written down."""

        def store_string(self, string: str) -> None:
            if not looks_secret(string):
                super().store_string(string)

    path = history_file()
    session: PromptSession[str] = PromptSession(
        history=_History(str(path)), completer=_Completer(), complete_while_typing=False
    )
    return session.prompt


def history_file() -> Path:
    """Where what was typed is kept, for this user alone."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = folder / "headrace" / "sql-history"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path
