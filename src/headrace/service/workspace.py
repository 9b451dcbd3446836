"""Statements done, one after the other: what creates, changes and shows what an engine runs.

The same for an engine in the process itself and for a service: who asks, and what requests may
name, are arguments. All of it is called on one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.assembly import query_of, register, start_sink
from headrace.engine.checkpoint.files import file_system, plain_path
from headrace.errors import HeadraceError, Position, QueryError, StreamError
from headrace.names import folded
from headrace.pipeline import Pipeline, QuerySpec, StreamSpec, TableSpec, ViewSpec
from headrace.reading_order import in_reading_order
from headrace.service.definitions import Definition, DefinitionFiles
from headrace.service.described import (
    Described,
    columns_of,
    described,
    named_for,
    query_state,
)
from headrace.service.engine_life import EngineLife
from headrace.service.limits import Allowed, Limits, TooMuch
from headrace.service.plans import Plans
from headrace.service.result_rows import ResultTable
from headrace.service.rights import Caller, NotAllowed, Role
from headrace.statements import (
    Create,
    Describe,
    Drop,
    Explain,
    Kind,
    Pause,
    Resume,
    Select,
    Show,
    ShowResults,
    Spec,
    Statement,
    StatementError,
    kind_of_spec,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.session import Headrace, Query, QueryHandle

#: Where a text stands by itself.
_BEGIN = Position(1, 1)
_UNKNOWN = {kind: f"UNKNOWN_{kind.name}" for kind in Kind}


def open_workspace(
    spark: SparkSession,
    checkpoint: str,
    pipeline: Pipeline | None = None,
    allowed: Allowed | None = None,
    limits: Limits | None = None,
    trigger: str | None = None,
) -> Workspace:
    """The workspace of a checkpoint, with all that was created there before."""
    from headrace.session import Headrace

    hr = Headrace(spark, checkpoint)
    settings = hr.engine.settings
    root = plain_path(checkpoint)
    storage = file_system(spark, root, settings.checkpoint_flush)
    files = DefinitionFiles(storage, root, settings.lease_timeout)
    workspace = Workspace(spark, hr, files, allowed, limits, trigger)
    try:
        workspace.load(pipeline)
    except BaseException:
        files.close()
        raise
    return workspace


@dataclass(frozen=True)
class Answer:
    """What came of a statement: a word on it, things, or a text.

    ``pending`` is what is still to be done by the engine; the answer holds when it is.
    """

    message: str = ""
    things: list[Described] = field(default_factory=list)
    text: str | None = None
    pending: Future[None] | None = None


class Workspace:
    """All that was created, on one session."""

    def __init__(
        self,
        spark: SparkSession,
        hr: Headrace,
        files: DefinitionFiles,
        allowed: Allowed | None = None,
        limits: Limits | None = None,
        trigger: str | None = None,
    ) -> None:
        self._spark, self._files = spark, files
        self._hr = hr
        self._sessions: dict[str, Headrace] = {"": hr}
        self.allowed, self.limits = allowed or Allowed(everything=True), limits or Limits()
        self.life = EngineLife(hr, trigger, self._wanted)
        self.plans = Plans(hr)
        self._by_key: dict[tuple[Kind, str, str], Definition] = {}
        self._handles: dict[str, QueryHandle] = {}
        #: What was dropped, and the engine has not let go of yet; and what it has.
        self._going: dict[int, Definition] = {}
        self._gone: deque[Definition] = deque()

    # What is there from the beginning

    def load(self, pipeline: Pipeline | None = None) -> None:
        """Bring back what was created before, and what a pipeline file names.

        What stands in the file is not written down: the file says it at each start.
        """
        if pipeline is not None:
            self._load_relations(pipeline)
        definitions = self._files.load()
        living = {d.key for d in definitions if d.dropped_at is None}
        for definition in definitions:
            if definition.dropped_at is not None:
                before = definition.dropped_at if definition.key in living else None
                self._let_go(definition, before)
                continue
            if definition.key in self._by_key:
                raise StreamError(
                    f"the pipeline names {definition.spec.name!r}, which was created by request",
                    hint="take it out of the file, or drop it first",
                )
            try:
                self._bring_up(definition)
            except HeadraceError as error:
                raise type(error)(
                    f"{definition.kind} {definition.spec.name!r} cannot be brought back: "
                    f"{error.message}",
                    hint=error.hint,
                    condition=error.condition,
                ) from error
        for spec in () if pipeline is None else pipeline.queries:
            self._bring_up(Definition(0, spec, owner="the pipeline"))

    def _load_relations(self, pipeline: Pipeline) -> None:
        views = in_reading_order(pipeline.views)
        relations: list[Spec] = [*pipeline.streams, *pipeline.tables]
        for spec in (*relations, *views):
            self._bring_up(Definition(0, spec, owner="the pipeline"))

    def _bring_up(self, definition: Definition) -> None:
        session, spec = self._session(definition.tenant), definition.spec
        if isinstance(spec, QuerySpec):
            self._start(definition, query_of(session, spec, StatementError))
        else:
            register(session, self._spark, spec, StatementError)
        self._by_key[definition.key] = definition

    def close(self, timeout: float | None = 30.0) -> bool:
        """Stop after the epoch that runs, or abandon it; whether it was done."""
        whole = self.life.stop(timeout)
        self.tidy()
        self._files.close()
        return whole

    # Statements

    def do(self, statement: Statement, caller: Caller) -> Answer:
        """Do what a statement says, if this caller may."""
        self.tidy()
        match statement:
            case Create():
                return self.create(caller, statement)
            case Drop():
                return self.drop(caller, statement.kind, statement.name, statement.if_exists)
            case Pause():
                return self.pause(caller, statement.name)
            case Resume():
                return self.resume(caller, statement.name, statement.from_now)
            case Show():
                return Answer(things=self.list(caller, statement.kind))
            case Describe():
                return Answer(things=[self.describe(caller, statement.kind, statement.name)])
            case Explain():
                return Answer(text=self.explain(caller, statement))
            case ShowResults():
                page = self.results(caller, statement.name).newest(statement.limit)
                return Answer(things=page)
            case Select():
                return self.check(caller, statement.sql, statement.at)

    def create(self, caller: Caller, statement: Create) -> Answer:
        spec, kind = statement.spec, kind_of_spec(statement.spec)
        if kind in (Kind.STREAM, Kind.TABLE):
            caller.require(Role.ADMIN, f"create a {kind}")
            caller.require_house(f"create a {kind}")
        else:
            caller.require(Role.SUBMIT, f"create a {kind}")
        if isinstance(spec, QuerySpec | ViewSpec):
            self.limits.check_letters(spec.sql)
        self.allowed.check(spec)
        tenant = caller.tenant
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        definition = Definition(0, spec, tenant, caller.name, statement.tags, moment)
        known = self._by_key.get(definition.key)
        if known is not None:
            if statement.if_not_exists and known.kind is kind:
                return Answer(f"{kind} {spec.name!r} is there already", [self._told(caller, known)])
            raise StreamError(
                f"there is a {known.kind} named {known.spec.name!r} already",
                hint="choose another name, or drop that one first",
                condition="DUPLICATE_QUERY" if kind is Kind.QUERY else "DUPLICATE_NAME",
            )
        self._check_number(definition)
        if kind is Kind.QUERY:
            return self._create_query(caller, definition)
        self._check_guests(definition)
        register(self._session(tenant), self._spark, spec, StatementError)  # type: ignore[arg-type]
        try:
            self._keep(self._with_columns(definition))
        except BaseException:
            self._session(tenant).drop(spec.name)
            raise
        return Answer(f"{kind} {spec.name!r} is there", [self._told(caller, definition)])

    def _create_query(self, caller: Caller, definition: Definition) -> Answer:
        spec = definition.spec
        assert isinstance(spec, QuerySpec)
        self._refuse_going(definition)
        query = query_of(self._session(definition.tenant), spec, StatementError)
        kept = self._files.add(definition)
        try:
            self._start(kept, query)
        except BaseException:
            self._files.delete(kept)
            raise
        self._by_key[kept.key] = kept
        self.life.look_at_once()
        return Answer(f"query {spec.name!r} runs", [self._told(caller, kept)])

    def _start(self, definition: Definition, query: Query) -> None:
        spec = definition.spec
        assert isinstance(spec, QuerySpec)
        inside = self._inside(definition)
        self._handles[inside] = start_sink(query, spec, inside)

    def drop(self, caller: Caller, kind: Kind, name: str, if_exists: bool = False) -> Answer:
        definition = self._look_up(caller, kind, name)
        if definition is None:
            if if_exists:
                return Answer(f"there is no {kind} {name!r}")
            raise self._unknown(caller, kind, name)
        self._require_change(caller, definition, "drop")
        if kind is Kind.QUERY:
            inside, epoch = self._inside(definition), self._hr.engine.state().epoch
            marked = self._files.mark_dropped(definition, epoch)
            del self._by_key[definition.key], self._handles[inside]
            pending = self._let_go(marked, None)
            return Answer(f"query {name!r} is dropped", pending=pending)
        self._session(definition.tenant).drop(definition.spec.name)
        del self._by_key[definition.key]
        self._files.delete(definition)
        return Answer(f"{kind} {name!r} is dropped")

    def _let_go(self, definition: Definition, before: int | None) -> Future[None] | None:
        """Have the engine forget a query; when it has, its name is free."""
        inside = self._inside(definition)
        pending = self._hr.engine.change_query(inside, "forget", before)
        self._going[definition.number] = definition
        pending.add_done_callback(lambda _: self._gone.append(definition))
        self.life.look_at_once()
        return pending if self._hr.isActive else None

    def tidy(self) -> None:
        """Forget for good what the engine has let go of."""
        while self._gone:
            definition = self._gone.popleft()
            self._files.delete(definition)
            self._going.pop(definition.number, None)

    def pause(self, caller: Caller, name: str) -> Answer:
        definition = self._query(caller, name)
        caller.require(Role.SUBMIT, "pause a query")
        inside = self._inside(definition)
        branch = self.life.standing_still().get(inside)
        if branch is not None:
            return Answer(f"query {name!r} stands still already")
        pending = self._hr.engine.change_query(inside, "pause")
        return Answer(f"query {name!r} is paused", pending=pending)

    def resume(self, caller: Caller, name: str, from_now: bool = False) -> Answer:
        definition = self._query(caller, name)
        caller.require(Role.SUBMIT, "resume a query")
        inside = self._inside(definition)
        if inside not in self.life.standing_still():
            error = self._handles[inside].exception()
            if error is None:
                return Answer(f"query {name!r} runs already")
            # What it reads broke: its stream is opened anew, and with it all of that stream's.
            self.life.restart()
            return Answer(f"query {name!r} goes on: the engine starts again")
        pending = self._hr.engine.change_query(inside, "skip" if from_now else "retry")
        if not self._hr.isActive:
            self.life.resumed(inside)
        how = "from now" if from_now else "from where it was"
        return Answer(f"query {name!r} goes on {how}", pending=pending)

    def list(self, caller: Caller, kind: Kind) -> list[Described]:
        """All that the caller may see of a kind, in the order in which they were created."""
        still = self.life.standing_still() if kind is Kind.QUERY else {}
        runs = self._hr.isActive
        return [
            self._told(caller, definition, still, runs)
            for definition in self._visible(caller)
            if definition.kind is kind
        ]

    def describe(self, caller: Caller, kind: Kind | None, name: str) -> Described:
        """One thing with its columns."""
        for each in Kind if kind is None else (kind,):
            definition = self._look_up(caller, each, name)
            if definition is not None:
                break
        else:
            raise self._unknown(caller, kind or Kind.QUERY, name)
        return {
            **self._told(caller, definition, self.life.standing_still(), self._hr.isActive),
            "columns": columns_of(self._schema(definition)),
        }

    def explain(self, caller: Caller, statement: Explain) -> str:
        """A plan as text."""
        if statement.name is None:
            self.limits.check_letters(statement.sql or "")
            query = self._asked(caller, statement.sql or "", statement.at)
            return self.plans.explained(query, statement.mode, self._sees_plans(caller))
        definition = self._query(caller, statement.name)
        inside = self._inside(definition)
        assert isinstance(definition.spec, QuerySpec)
        query = self._session(definition.tenant).sql(definition.spec.sql)
        handle = self._handles[inside]
        return self.plans.explained(query, statement.mode, self._sees_plans(caller), handle)

    def check(self, caller: Caller, sql: str, at: Position = _BEGIN) -> Answer:
        """Whether a text could run, and what it would put out."""
        self.limits.check_letters(sql)
        query = self._asked(caller, sql, at)
        thing = {"columns": columns_of(query.schema), "streams": sorted(query.plan.streams())}
        return Answer("the query can run; CREATE QUERY name AS … lets it", [thing])

    def results(self, caller: Caller, name: str) -> ResultTable:
        """The result table of a query; it can be read on any thread."""
        definition = self._query(caller, name)
        assert isinstance(definition.spec, QuerySpec)
        if definition.spec.sink.format != "results":
            raise QueryError(
                f"query {name!r} writes to {definition.spec.sink.format}, and keeps no results",
                hint="read them there",
                condition="NO_RESULTS",
            )
        return ResultTable(self._hr.engine, self._handles[self._inside(definition)].sink)

    def handles(self, caller: Caller) -> dict[str, QueryHandle]:
        """The queries that a caller sees, by the names that it knows."""
        return {
            named_for(caller, definition): self._handles[self._inside(definition)]
            for definition in self._visible(caller)
            if definition.kind is Kind.QUERY
        }

    # Looking up

    def _session(self, tenant: str) -> Headrace:
        if tenant not in self._sessions:
            self._sessions[tenant] = self._hr.guest()
        return self._sessions[tenant]

    @staticmethod
    def _inside(definition: Definition) -> str:
        return Caller("", Role.READ, definition.tenant).inside(definition.spec.name)

    def _visible(self, caller: Caller) -> Iterable[Definition]:
        return (
            definition
            for definition in self._by_key.values()
            if caller.sees(definition.tenant)
            or (definition.tenant == "" and definition.kind is not Kind.QUERY)
        )

    def _look_up(self, caller: Caller, kind: Kind, name: str) -> Definition | None:
        space = Kind.QUERY if kind is Kind.QUERY else Kind.STREAM
        tenants = [caller.tenant]
        if caller.tenant and space is Kind.STREAM:
            tenants.append("")
        keys = [(space, tenant, folded(name)) for tenant in tenants]
        tenant, dot, rest = name.partition(".")
        if dot and caller.sees_all:
            keys.append((space, tenant, folded(rest)))
        for key in keys:
            definition = self._by_key.get(key)
            if definition is not None and definition.kind is kind:
                return definition
        return None

    def _query(self, caller: Caller, name: str) -> Definition:
        definition = self._look_up(caller, Kind.QUERY, name)
        if definition is None:
            raise self._unknown(caller, Kind.QUERY, name)
        return definition

    def _unknown(self, caller: Caller, kind: Kind, name: str) -> HeadraceError:
        from headrace.sql.refusals import did_you_mean

        names = [named_for(caller, d) for d in self._visible(caller) if d.kind is kind]
        hint = did_you_mean(name, names, "") or None
        return QueryError(f"no {kind} {name!r}", hint=hint, condition=_UNKNOWN[kind])

    def _told(
        self,
        caller: Caller,
        definition: Definition,
        still: dict[str, Any] | None = None,
        runs: bool = True,
    ) -> Described:
        body = {**described(definition), "name": named_for(caller, definition)}
        if definition.kind is Kind.QUERY:
            inside = self._inside(definition)
            body |= query_state(inside, self._handles[inside], still or {}, runs)
            if body["progress"] is not None:
                body["progress"] = {**body["progress"], "name": body["name"]}
        return body

    def _schema(self, definition: Definition) -> Any:
        session, spec = self._session(definition.tenant), definition.spec
        if isinstance(spec, QuerySpec):
            return self._handles[self._inside(definition)].schema
        return session.schema_of(spec.name)

    def _asked(self, caller: Caller, sql: str, at: Position) -> Query:
        """A query that is only asked about; errors are placed where its text stands."""
        place = ViewSpec("asked", sql, at, at, False, sql_in_line=True).position_in_file
        try:
            return self._session(caller.tenant).sql(sql)
        except HeadraceError as error:
            inside = at if error.position is None else place(error.position)
            raise type(error)(
                error.message, hint=error.hint, position=inside, condition=error.condition
            ) from error

    def _sees_plans(self, caller: Caller) -> bool:
        """Whether what others run may be part of what is told."""
        return caller.sees_all or all(
            d.tenant == caller.tenant for d in self._by_key.values() if d.kind is Kind.QUERY
        )

    def _wanted(self) -> set[str]:
        return set(self._handles)

    # Checks

    def _check_number(self, definition: Definition) -> None:
        is_query = definition.kind is Kind.QUERY
        alike = sum(
            (other.kind is Kind.QUERY) == is_query and other.tenant == definition.tenant
            for other in self._by_key.values()
        )
        most = self.limits.queries_per_tenant if is_query else self.limits.relations
        if alike >= most:
            what = "queries" if is_query else "streams, tables and views"
            raise TooMuch(f"there are {alike} {what}, and no more are taken", hint="drop some")

    def _check_guests(self, definition: Definition) -> None:
        """A name that all can see must not be that of somebody's view."""
        if definition.tenant:
            return
        name = folded(definition.spec.name)
        if any(kind is Kind.STREAM and key == name for kind, _, key in self._by_key):
            raise StreamError(
                f"a tenant has a view named {definition.spec.name!r}",
                hint="choose another name",
                condition="DUPLICATE_NAME",
            )

    def _refuse_going(self, definition: Definition) -> None:
        """While the engine lets go of a query its name is taken; one that stands still forgets
        at its next start, before anything new of that name begins."""
        self.tidy()
        if not self._hr.isActive:
            return
        if any(going.key == definition.key for going in self._going.values()):
            raise QueryError(
                f"a query named {definition.spec.name!r} is being dropped",
                hint="try again in a moment",
                condition="DUPLICATE_QUERY",
            )

    def _require_change(self, caller: Caller, definition: Definition, what: str) -> None:
        if definition.kind in (Kind.STREAM, Kind.TABLE) or definition.tenant != caller.tenant:
            caller.require(Role.ADMIN, f"{what} {definition.kind} {definition.spec.name!r}")
            caller.require_house(f"{what} {definition.kind} {definition.spec.name!r}")
        else:
            caller.require(Role.SUBMIT, f"{what} a {definition.kind}")
        if definition.number == 0 and self._files.is_durable:
            raise NotAllowed(
                f"{definition.kind} {definition.spec.name!r} stands in the pipeline file",
                hint="take it out there, and start the service again",
            )

    def _keep(self, definition: Definition) -> None:
        kept = self._files.add(definition)
        self._by_key[kept.key] = kept

    def _with_columns(self, definition: Definition) -> Definition:
        """With the columns that were inferred, so that they are the same after a restart."""
        spec = definition.spec
        if isinstance(spec, StreamSpec | TableSpec) and spec.schema is None and spec.path:
            columns = self._session("").columns_read(spec.name)
            return replace(definition, spec=replace(spec, schema=columns))
        return definition
