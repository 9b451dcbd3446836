"""What a route needs: who asks, and the one thread that does what they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from headrace.errors import HeadraceError
from headrace.service.commands import Commands
from headrace.service.described import Described
from headrace.service.limits import Limits
from headrace.service.problems import NotAuthenticated
from headrace.service.rights import HOUSE, Caller, Role
from headrace.service.tokens import TokenFile
from headrace.service.workspace import Answer, Workspace

T = TypeVar("T")
#: How long (seconds) a request waits for the engine to do between two epochs what it asked for.
_PATIENCE = 60.0


@dataclass
class Service:
    """What all routes share. Without tokens everybody who reaches it may do anything."""

    workspace: Workspace
    commands: Commands
    tokens: TokenFile | None
    limits: Limits = field(default_factory=Limits)
    followers: int = 0

    async def do(self, work: Callable[[], T]) -> T:
        """Have something done on the thread of the commands."""
        return await asyncio.wrap_future(self.commands.submit(work))

    async def done(self, work: Callable[[], Answer]) -> Answer:
        """The same for a statement, whose answer holds when the engine has done its part."""
        answer = await self.do(work)
        if answer.pending is not None:
            waiting = asyncio.wrap_future(answer.pending)
            try:
                await asyncio.wait_for(asyncio.shield(waiting), _PATIENCE)
            except TimeoutError:
                raise HeadraceError(
                    f"{answer.message} as soon as the epoch that runs is over",
                    hint="it need not be asked for again",
                    condition="TRY_AGAIN",
                ) from None
        return answer


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def _caller(request: Request) -> Caller:
    """Who sent this request, by their token."""
    service = _service(request)
    if service.tokens is None:
        return HOUSE
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    caller = service.tokens.caller(secret.strip()) if kind.lower() == "bearer" else None
    if caller is None:
        raise NotAuthenticated(
            "this service does not know who asks",
            hint="send 'Authorization: Bearer …' with a token that `headrace token create` made",
        )
    caller.require(Role.READ, "read")
    return caller


TheService = Annotated[Service, Depends(_service)]
TheCaller = Annotated[Caller, Depends(_caller)]


def told(answer: Answer) -> Described:
    """An answer to a statement as JSON."""
    return {"message": answer.message, "things": answer.things, "text": answer.text}
