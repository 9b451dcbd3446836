"""A service from Python: ``headrace.connect("http://…")``, with the names of the session.

It needs nothing but the standard library; results come as Arrow, and become what is asked for.
"""

from __future__ import annotations

import io
import json
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlparse
from urllib.request import HTTPRedirectHandler, Request, build_opener
from urllib.request import HTTPSHandler as _HTTPSHandler

from headrace.errors import HeadraceError, Position

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_ARROW = "application/vnd.apache.arrow.stream"
#: Where a token is found if none is given.
TOKEN_VARIABLE = "HEADRACE_TOKEN"


class ServiceError(HeadraceError):
    """What a service has answered with, or that none did."""

    condition = "SERVICE_NOT_REACHED"


class _NoRedirects(HTTPRedirectHandler):
    """A token is for the service that it was made for, wherever that one points."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def connect(
    url: str,
    token: str | None = None,
    *,
    certificate: str | None = None,
    timeout: float = 90.0,
) -> Connection:
    """A connection to a service.

    ``token`` is that of the environment (``HEADRACE_TOKEN``) unless it is given; ``certificate`` is
    the file of the certificate that the service shows, if no authority vouches for it.
    """
    if urlparse(url).scheme not in ("http", "https"):
        raise ServiceError(f"{url!r} is no address", hint="write http://host:port")
    secret = token if token is not None else os.environ.get(TOKEN_VARIABLE, "")
    return Connection(url.rstrip("/"), secret, certificate, timeout)


@dataclass(frozen=True)
class Connection:
    """A service. Errors are those of the service, with condition, place and advice."""

    url: str
    _token: str = field(repr=False, default="")
    _certificate: str | None = None
    _timeout: float = 90.0

    # Queries

    def sql(self, text: str) -> RemoteQuery:
        """A query from SQL text, checked by the service."""
        body = self._post("/validate", {"queries": [text]})["queries"][0]
        if not body["valid"]:
            raise _error_of(body["error"])
        return RemoteQuery(self, text, tuple(column["name"] for column in body["columns"]))

    def execute(self, statement: str) -> dict[str, Any]:
        """Do a statement, as the shell takes it: what is said of it, things, and text."""
        return self._post("/sql", {"text": statement})

    @property
    def queries(self) -> list[RemoteHandle]:
        """All queries that may be seen."""
        found = self._get("/queries", limit=10_000)["queries"]
        return [RemoteHandle(self, query["name"]) for query in found]

    def query(self, name: str) -> RemoteHandle:
        """A query by its name."""
        handle = RemoteHandle(self, name)
        _ = handle.status
        return handle

    def stream(
        self,
        name: str,
        format: str,
        path: str | None = None,
        *,
        time: str,
        columns: str | None = None,
        delay: str | None = None,
        ttl: str | None = None,
        idle: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Register a stream; the service must allow its format, path and options."""
        body = {"name": name, "format": format, "path": path, "columns": columns, "time": time}
        times = {"delay": delay, "ttl": ttl, "idle": idle}
        return self._post("/streams", {**body, **times, "options": dict(options or {})})

    def table(
        self,
        name: str,
        format: str,
        path: str | None = None,
        *,
        columns: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Register a table; the service must allow its format, path and options."""
        body = {"name": name, "format": format, "path": path, "columns": columns}
        return self._post("/tables", {**body, "options": dict(options or {})})

    def view(self, name: str, text: str) -> dict[str, Any]:
        """Name a query, for other queries to read."""
        return self._post("/views", {"name": name, "sql": text})

    def streams(self) -> list[dict[str, Any]]:
        return list(self._get("/streams")["streams"])

    def drop(self, name: str) -> None:
        """Forget a stream, table or view that nobody reads."""
        for kind in ("streams", "tables", "views"):
            try:
                self._request("DELETE", f"/{kind}/{quote(name, safe='')}")
                return
            except ServiceError as error:
                if not error.condition.startswith("UNKNOWN_"):
                    raise
        raise ServiceError(f"no stream, table or view {name!r}", condition="UNKNOWN_STREAM")

    def validate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """For each text whether it could run, its columns, or what is wrong with it."""
        return list(self._post("/validate", {"queries": list(texts)})["queries"])

    def explain(self, mode: str = "simple") -> None:
        """Print the plan of all queries."""
        plan = self._get("/plan", mode=mode)["plan"]
        print(plan if isinstance(plan, str) else json.dumps(plan, indent=2))

    def results(self, name: str) -> RemoteResults:
        """The rows that a query has put out up to now."""
        return RemoteResults(self, name)

    # Requests

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return self._json("GET", path, None, parameters)

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        return self._json("POST", path, body, {})

    def _json(
        self, method: str, path: str, body: Any, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        with self._request(method, path, body, parameters) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        parameters: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        given = {key: value for key, value in (parameters or {}).items() if value is not None}
        address = f"{self.url}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        sent = {"Accept": accept, **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = Request(address, data=data, headers=sent, method=method)
        context = ssl.create_default_context(cafile=self._certificate)
        opener = build_opener(_NoRedirects, _HTTPSHandler(context=context))
        try:
            return opener.open(request, timeout=self._timeout)
        except HTTPError as error:
            raise _error_in(error) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(
                f"no service answers at {self.url}: {reason}",
                hint="start one with `headrace serve`",
            ) from None


@dataclass(frozen=True)
class RemoteQuery:
    """A query that the service could run."""

    connection: Connection
    text: str
    columns: tuple[str, ...]

    def explain(self, mode: str = "simple") -> None:
        """Print the plan: simple, extended, cost, json, dot or alternatives."""
        print(self.explanation(mode))

    def explanation(self, mode: str = "simple") -> str:
        return str(self.connection._post("/explain", {"sql": self.text, "mode": mode})["plan"])

    def start(
        self,
        name: str,
        format: str = "results",
        path: str | None = None,
        *,
        outputMode: str | None = None,
        options: Mapping[str, str] | None = None,
        tags: Sequence[str] = (),
    ) -> RemoteHandle:
        """Let it run, under a name."""
        sink = {"format": format, "path": path, "options": dict(options or {})}
        body = {"name": name, "sql": self.text, "sink": sink, "tags": list(tags)}
        self.connection._post("/queries", {**body, "outputMode": outputMode})
        return RemoteHandle(self.connection, name)


@dataclass(frozen=True)
class RemoteHandle:
    """A query that was created."""

    connection: Connection
    name: str

    @property
    def _path(self) -> str:
        return f"/queries/{quote(self.name, safe='')}"

    @property
    def status(self) -> dict[str, Any]:
        """All that the service tells of it."""
        return self.connection._get(self._path)

    @property
    def isActive(self) -> bool:
        return self.status["state"] in ("running", "waiting")

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.status["progress"]
        return found

    def explain(self, mode: str = "cost") -> None:
        """Print its plan; ``analyze`` adds what it did."""
        print(self.connection._get(f"{self._path}/plan", mode=mode)["plan"])

    def pause(self) -> None:
        """Let it stand still; the rows that it misses are kept for it."""
        self.connection._request("POST", f"{self._path}/pause", {})

    def resume(self, from_now: bool = False) -> None:
        """Let it go on where it was, or from now."""
        where = "now" if from_now else "here"
        self.connection._request("POST", f"{self._path}/resume", {"from": where})

    def drop(self) -> None:
        """Let it go, with its state and its results."""
        self.connection._request("DELETE", self._path)

    def results(self) -> RemoteResults:
        return RemoteResults(self.connection, self.name)


@dataclass(frozen=True)
class RemoteResults:
    """The result table of a query; ``filters`` are ``column:sign:value``."""

    connection: Connection
    name: str
    filters: tuple[str, ...] = ()

    def where(self, column: str, sign: str, value: object) -> RemoteResults:
        """Only rows whose column compares so (eq, ne, lt, le, gt, ge) with a value."""
        return RemoteResults(
            self.connection, self.name, (*self.filters, f"{column}:{sign}:{value}")
        )

    def toArrow(self, limit: int | None = None) -> pyarrow.Table:
        """All rows, or so many."""
        import pyarrow

        tables = list(self._pages(limit))
        table = pyarrow.concat_tables(tables, promote_options="permissive")
        return table if limit is None else table.slice(0, limit)

    def toPandas(self, limit: int | None = None) -> pandas.DataFrame:
        return self.toArrow(limit).to_pandas()

    def toPolars(self, limit: int | None = None) -> polars.DataFrame:
        """The same as a Polars frame, where Polars is installed."""
        import polars

        frame = polars.from_arrow(self.toArrow(limit))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def follow(self, since: int = 0) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Epochs and their rows, as they come, without end."""
        answer = self.connection._request(
            "GET", f"{self._path}/events", None, {"since": since}, "text/event-stream"
        )
        with answer:
            for line in answer:
                if line.startswith(b"data: "):
                    body = json.loads(line[len(b"data: ") :])
                    yield body["epoch"], body["rows"]

    @property
    def _path(self) -> str:
        return f"/results/{quote(self.name, safe='')}"

    def _pages(self, limit: int | None) -> Iterator[pyarrow.Table]:
        import pyarrow

        page, due = None, limit
        while True:
            rows = 10_000 if due is None else min(due, 10_000)
            parameters = {"page": page, "limit": max(rows, 1), "filter": list(self.filters) or None}
            with self.connection._request("GET", self._path, None, parameters, _ARROW) as answer:
                page = answer.headers.get("Headrace-Next")
                table = pyarrow.ipc.open_stream(io.BytesIO(answer.read())).read_all()
            yield table
            due = None if due is None else due - table.num_rows
            if page is None or (due is not None and due <= 0):
                return


def _error_in(error: HTTPError) -> ServiceError:
    try:
        return _error_of(json.loads(error.read()))
    except (ValueError, KeyError, TypeError):
        return ServiceError(f"the service answered {error.code} {error.reason}")


def _error_of(body: Mapping[str, Any]) -> ServiceError:
    place = body["position"]
    position = None if place is None else Position(place["line"], place["column"])
    return ServiceError(
        body["message"], hint=body["advice"], position=position, condition=body["condition"]
    )
