"""What is refused before anybody reads it: bodies that are too long, pages of other sites.

A service that lets everybody on the machine in is reached by every page that a browser on it opens,
unless it asks for more than a page of another site can send: its own name as the host, and bodies
that are JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from headrace.errors import HeadraceError
from headrace.service.limits import TooMuch
from headrace.service.problems import problem
from headrace.service.rights import NotAllowed

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_CHANGING = ("POST", "PUT", "PATCH")
_JSON = "application/json"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "testserver")


class Gatekeeper:
    """Wraps an ASGI application."""

    def __init__(self, app: App, most_bytes: int, hosts: tuple[str, ...] | None) -> None:
        self._app, self._most, self._hosts = app, most_bytes, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        refused = self._refusal(scope["method"], headers)
        if refused is not None:
            await problem(*refused)(scope, receive, send)
            return
        if scope["method"] not in _CHANGING:
            await self._app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > self._most:
                await problem(*self._too_long())(scope, receive, send)
                return
            more = message.get("more_body", False)
        told = False

        async def replay() -> Message:
            nonlocal told
            if told:
                return await receive()
            told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def _refusal(self, method: str, headers: dict[str, str]) -> tuple[HeadraceError, int] | None:
        host = headers.get("host", "").rsplit(":", 1)[0] if self._hosts is not None else ""
        if self._hosts is not None and host not in self._hosts:
            return NotAllowed(f"this service is not called {host!r}"), 403
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._most:
            return self._too_long()
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        # A page of another site can send a form or a text without asking, but no JSON.
        if method in _CHANGING and (length != "0" or kind) and kind != _JSON:
            message = f"bodies are {_JSON}, not {kind or 'without a type'}"
            return HeadraceError(message, condition="INVALID_REQUEST"), 415
        if method in (*_CHANGING, "DELETE") and headers.get("sec-fetch-site") == "cross-site":
            return NotAllowed("pages of other sites may change nothing here"), 403
        return None

    def _too_long(self) -> tuple[HeadraceError, int]:
        return TooMuch(f"a request has at most {self._most} bytes"), 413
