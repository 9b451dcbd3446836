"""Requests about texts that do not run, and about the plan of all that do."""

from __future__ import annotations

import json
from functools import partial
from typing import Literal

from fastapi import APIRouter

from headrace.errors import HeadraceError, Position
from headrace.service.caller import TheCaller, TheService, told
from headrace.service.described import Described, shown_error
from headrace.service.limits import TooMuch
from headrace.service.requests import ExplainBody, StatementBody, ValidateBody
from headrace.service.rights import Caller
from headrace.service.workspace import Workspace
from headrace.statements import Explain, parse_statement

routes = APIRouter(tags=["plans"])
#: How many texts are checked before others get their turn.
_PIECE = 10


@routes.post("/explain")
async def explain(body: ExplainBody, service: TheService, caller: TheCaller) -> Described:
    """The plan that a text would have if it ran now."""
    statement = Explain(body.mode, None, body.sql, Position(1, 1))
    return {"plan": await service.do(lambda: service.workspace.explain(caller, statement))}


@routes.post("/validate")
async def validate(body: ValidateBody, service: TheService, caller: TheCaller) -> Described:
    """For each text whether it could run: its columns, or what is wrong with it, and where."""
    most = service.limits.batch
    if len(body.queries) > most:
        raise TooMuch(f"{len(body.queries)} texts are too many", hint=f"send {most} at once")
    outcomes: list[Described] = []
    for first in range(0, len(body.queries), _PIECE):
        texts = body.queries[first : first + _PIECE]
        outcomes += await service.do(partial(_checked, service.workspace, caller, texts))
    return {"valid": sum(outcome["valid"] for outcome in outcomes), "queries": outcomes}


def _checked(workspace: Workspace, caller: Caller, texts: list[str]) -> list[Described]:
    outcomes: list[Described] = []
    for text in texts:
        try:
            outcomes.append({"valid": True, **workspace.check(caller, text).things[0]})
        except HeadraceError as error:
            outcomes.append({"valid": False, "error": {**shown_error(error), "detail": str(error)}})
    return outcomes


@routes.get("/plan")
async def plan(
    service: TheService, caller: TheCaller, mode: Literal["simple", "json", "dot"] = "json"
) -> Described:
    """The plan of all queries, with what they share named once."""
    caller.require_house("see the plan of all queries")
    text = await service.do(lambda: service.workspace.plans.of_all(mode))
    return {"plan": json.loads(text) if mode == "json" else text}


@routes.post("/sql")
async def statement(body: StatementBody, service: TheService, caller: TheCaller) -> Described:
    """Do one statement, as the shell takes it."""
    service.limits.check_letters(body.text)
    statement = parse_statement(body.text)
    return told(await service.done(lambda: service.workspace.do(statement, caller)))
