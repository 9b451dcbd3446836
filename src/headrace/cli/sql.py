"""``headrace sql``: statements, typed or from a file, to a service or to an engine of its own."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.answers import print_answer
from headrace.cli.console import note
from headrace.cli.speakers import Remote, Speaker, embedded
from headrace.statements import StatementError
from headrace.statements.words import split


def sql(
    context: typer.Context,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="An engine of its own, on this checkpoint; without one, for once."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="A service, as in http://127.0.0.1:8090.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="HEADRACE_TOKEN", help="The token for it.", show_default=False),
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate that it shows.")
    ] = None,
    execute: Annotated[
        str | None, typer.Option("-e", metavar="TEXT", help="Do these statements, and end.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", metavar="FILE", help="Do those of a file, and end.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answers as JSON, a line each.")] = False,
) -> None:
    """Create, watch and drop queries by SQL statements."""
    if checkpoint is not None and url is not None:
        raise StatementError("--checkpoint and --url are two places", hint="give one of them")
    if execute is not None and file is not None:
        raise StatementError("-e and -f are two scripts", hint="give one of them")
    texts = _script(execute, file)
    if url is not None:
        from headrace.client import connect

        _speak(Remote(connect(url, token, certificate=certificate)), url, texts, json)
        return
    with embedded(checkpoint, bool(context.obj)) as speaker:
        _speak(speaker, checkpoint or "an engine for once", texts, json)


def _speak(speaker: Speaker, where: str, texts: list[str] | None, json: bool) -> None:
    from headrace.cli.shell import run_shell

    if texts is None:
        run_shell(speaker, where)
        return
    for text in texts:
        answer = speaker.do(text)
        if json:
            print(json_text.dumps(answer, ensure_ascii=False))
        else:
            print_answer(answer)


def _script(execute: str | None, file: Path | None) -> list[str] | None:
    """The statements of a script, each where it stands, so that errors know their places."""
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StatementError(f"cannot read {file}: {error}") from None
    elif execute is not None:
        text = execute
    else:
        return None
    texts = []
    for words in split(text):
        begin, at = words.tokens[0].start, words.at
        blank = "\n" * (at.line - 1) + " " * (at.column - 1)
        texts.append(blank + text[begin : words.tokens[-1].end + 1])
    if not texts:
        note("no statement")
    return texts
