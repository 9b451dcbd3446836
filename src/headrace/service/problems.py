"""Errors as HTTP answers with them: problem details (RFC 9457) around the one-line error."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace.errors import HeadraceError
from headrace.redaction import redacted
from headrace.service.described import shown_error

_LOG = logging.getLogger("headrace")

MEDIA_TYPE = "application/problem+json"
_STATUS = {
    "NOT_AUTHENTICATED": 401,
    "NOT_ALLOWED": 403,
    "UNKNOWN_STREAM": 404,
    "UNKNOWN_TABLE": 404,
    "UNKNOWN_VIEW": 404,
    "UNKNOWN_QUERY": 404,
    "DUPLICATE_QUERY": 409,
    "DUPLICATE_NAME": 409,
    "QUERY_FAILED_BEFORE": 409,
    "NO_RESULTS": 409,
    "SINK_PATH_IN_USE": 409,
    "LIMIT_REACHED": 429,
    "ENGINE_NOT_RUNNING": 503,
    "SERVICE_ENDS": 503,
    "CHECKPOINT_IN_USE": 503,
    "STORAGE_NOT_WRITABLE": 503,
    "TRY_AGAIN": 503,
    "ENGINE_FAILED": 503,
}


class NotAuthenticated(HeadraceError):
    """Nobody whom the service knows."""

    condition = "NOT_AUTHENTICATED"


def problem(error: HeadraceError, status: int | None = None) -> JSONResponse:
    """The answer to a request that an error ends."""
    code = status or _STATUS.get(error.condition, 400)
    body = {
        "type": f"urn:headrace:{error.condition}",
        "title": error.condition.replace("_", " ").lower(),
        "status": code,
        "detail": str(error),
        **shown_error(error),
    }
    headers = {"WWW-Authenticate": "Bearer"} if code == 401 else {}
    if code in (429, 503):
        headers["Retry-After"] = "1"
    return JSONResponse(body, code, headers, MEDIA_TYPE)


async def on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    return problem(error)


async def on_bad_body(request: Request, error: Exception) -> JSONResponse:
    """What the body or the address lacks, in one line."""
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = dict(error.errors()[0])
    place = ".".join(str(part) for part in first.get("loc", ()))
    return problem(
        HeadraceError(f"{place}: {first.get('msg', '')}", condition="INVALID_REQUEST"), 422
    )


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(HeadraceError(str(error.detail), condition="INVALID_REQUEST"), error.status_code)


async def on_anything(request: Request, error: Exception) -> JSONResponse:
    """A mistake of ours, or Spark's: one line to the caller, all of it to the log."""
    _LOG.error("%s %s: %s", request.method, request.url.path, redacted(repr(error)))
    spark = type(error).__module__.startswith("pyspark")
    words = redacted(str(error)).strip().splitlines() if spark else []
    message = words[0] if words else "something went wrong; the service's log has more"
    return problem(HeadraceError(message, condition="INTERNAL_ERROR"), 500)
