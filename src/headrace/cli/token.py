"""``headrace token``: who may use a service."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import note, out

tokens = typer.Typer(
    name="token",
    help="Who may use a service: tokens, made here and shown once.",
    no_args_is_help=True,
)

File = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="The file of tokens, which holds digests.")
]
FILE = Path("headrace-tokens.json")


class RoleName(StrEnum):
    """What a token is for."""

    read = "read"
    submit = "submit"
    admin = "admin"


@tokens.command()
def create(
    name: Annotated[str, typer.Argument(help="What the token is called in lists and as an owner.")],
    role: Annotated[
        RoleName,
        typer.Option(help="read results, submit queries too, or administer streams and all else."),
    ] = RoleName.submit,
    tenant: Annotated[
        str, typer.Option(help="Whose queries it is about; others do not see them.")
    ] = "",
    file: File = FILE,
) -> None:
    """Make a token, and print it this once."""
    from headrace.service.rights import Role
    from headrace.service.tokens import TokenFile

    secret = TokenFile(file).create(name, Role[role.name.upper()], tenant)
    note(f"written to {file}; this is the only time that the token is shown")
    print(secret)


@tokens.command("list")
def list_all(file: File = FILE) -> None:
    """List the tokens; what they are made of is not kept."""
    from rich import box
    from rich.table import Table

    from headrace.service.tokens import TokenFile

    table = Table("token", "role", "tenant", "created", box=box.SIMPLE_HEAD)
    for token in TokenFile(file).all():
        table.add_row(token.name, token.role, token.tenant, token.created)
    out.print(table)


@tokens.command()
def revoke(name: Annotated[str, typer.Argument(help="Which one.")], file: File = FILE) -> None:
    """Let a token be good no more; a service that runs notices."""
    from headrace.service.tokens import TokenFile

    TokenFile(file).revoke(name)
    note(f"{name} is revoked")
