"""Which stores tasks can reach by themselves: found out once for each, before they are sent there.

Spark has its own connectors for everything; tasks have pyarrow's. For each store (a scheme with a
bucket or a host) the session's Hadoop configuration is translated, and then tasks try what they
will have to do: write, read and delete a small file. What does not work is Spark's from then on,
with the reason, so that no epoch fails on the way to it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headrace.engine.checkpoint.files import is_local
from headrace.engine.execution.duckdb.remote_files import Access, store_of
from headrace.engine.execution.duckdb.s3_access import PREFIX, SECRETS, options_of, s3_access
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.engine.execution.spark_errors import one_line

_LOG = logging.getLogger("headrace")
#: How often a store may fail a task that it was open to before; a network does that now and then.
FORGIVEN = 3
_CREDENTIAL_FILES = "hadoop.security.credential.provider.path"

#: Has tasks try a store by a specification of ``try_store``; why it cannot be, if so.
Trial = Callable[[Mapping[str, Any]], str | None]


@dataclass
class _Store:
    """A store, with what is known of it: ``why_not`` is None while nothing speaks against it."""

    access: Access | None = None
    why_not: str | None = None
    read: bool = False
    written: bool = False
    failures: int = 0


class Stores:
    """What is known of all stores that definitions read and write; anyone may ask meanwhile."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known: dict[str, _Store] = {}
        self._told: set[str] = set()
        self._news: list[str] = []

    def check(self, read: Iterable[str], written: Iterable[str], trial: Trial | None) -> None:
        """Raise ``Untranslatable`` where tasks cannot read or write these paths.

        Without a ``trial`` nothing is tried that was not tried before.
        """
        for path in written:
            self._check(path, True, trial)
        for path in read:
            self._check(path, False, trial)

    def accesses(self) -> dict[str, Access]:
        """How tasks reach what they can reach."""
        return {
            name: store.access
            for name, store in list(self._known.items())
            if store.access is not None and store.why_not is None
        }

    def failed(self, name: str, reason: str) -> None:
        """A store failed a task; if that happens again and again, it is left to Spark."""
        store = self._known.get(name)
        if store is None or store.why_not is not None:
            return
        store.failures += 1
        if store.failures > FORGIVEN:
            self._give_up(name, store, reason)

    def untried(self) -> list[str]:
        """The stores that tasks should be able to reach, but have not reached yet."""
        return [
            name
            for name, store in list(self._known.items())
            if store.why_not is None and not (store.read or store.written)
        ]

    def take_news(self) -> list[str]:
        """What was found out since this was last asked, to be told once."""
        news, self._news = self._news, []
        return news

    def hidden(self, text: str) -> str:
        """A text without the secrets of any store."""
        for store in list(self._known.values()):
            if store.access is not None:
                text = store.access.hidden(text)
        return text

    def _check(self, path: str, writes: bool, trial: Trial | None) -> None:
        name = None if is_local(path) else store_of(path)
        if name is None:
            return
        if name not in self._known:
            self._known[name] = self._mapped(name)
        store = self._known[name]
        tried = store.written if writes else store.read or store.written
        if store.why_not is None and not tried and trial is not None:
            self._try(name, store, path, writes, trial)
        if store.why_not is not None:
            if trial is not None:
                self._tell(name, store.why_not)
            raise Untranslatable(_text(name, store.why_not))

    def _try(self, name: str, store: _Store, path: str, writes: bool, trial: Trial) -> None:
        # Beside what is written, and hidden: a stray of a crash is nobody's output.
        folder = path.rpartition("/")[0] if writes else None
        reason = trial(
            {
                "stores": {name: store.access},
                "folder": folder,
                "file": None if writes else path,
            }
        )
        if reason is not None:
            self._give_up(name, store, reason)
        elif writes:
            store.written = True
        else:
            store.read = True

    def _give_up(self, name: str, store: _Store, reason: str) -> None:
        store.why_not = self.hidden(reason)
        self._tell(name, store.why_not)

    def _tell(self, name: str, reason: str) -> None:
        warning = f"Spark runs what reads or writes {name}, because tasks cannot reach it: {reason}"
        if warning not in self._told:
            self._told.add(warning)
            self._news.append(warning)
            _LOG.warning("%s", warning)

    def _mapped(self, name: str) -> _Store:
        try:
            return _Store(access_to(name, self._session))
        except Untranslatable as reason:
            return _Store(why_not=str(reason))
        except Exception as error:
            return _Store(why_not=f"its configuration cannot be read: {one_line(error)}")


def _text(name: str, reason: str) -> str:
    return f"{name}, which tasks cannot reach: {reason}"


def access_to(name: str, session: SparkSession) -> Access:
    """How tasks reach a store, by the session's Hadoop configuration."""
    scheme, _, place = name.partition("://")
    configuration: Any = session._jsparkSession.sessionState().newHadoopConf()
    if scheme in ("s3a", "s3", "s3n"):
        return _to_bucket(scheme, place, configuration, session)
    if scheme == "hdfs":
        return _to_hdfs(place, configuration, session)
    raise Untranslatable(f"pyarrow is not set up for {scheme}")


def _to_bucket(scheme: str, bucket: str, configuration: Any, session: SparkSession) -> Access:
    connector = configuration.get(f"fs.{scheme}.impl") or ""
    if not connector.endswith(".S3AFileSystem"):
        # Others have options of their own, and may be somebody else at the same bucket.
        raise Untranslatable(f"the connector of {scheme} is {connector or 'unknown'}")
    properties = configuration.getPropsWithPrefix(PREFIX)
    configured = {PREFIX + str(key): str(properties[key]) for key in properties}
    options = options_of(bucket, configured)
    secrets = _secrets(bucket, options, configuration, session)
    return s3_access(bucket, options, os.environ, secrets.get)


def _secrets(
    bucket: str, options: Mapping[str, str], configuration: Any, session: SparkSession
) -> dict[str, str | None]:
    """Secrets from the configuration, or from the credential files that it names."""
    jvm: Any = session.sparkContext._jvm
    mine = jvm.org.apache.hadoop.conf.Configuration(configuration)
    files = [options.get("security.credential.provider.path"), mine.get(_CREDENTIAL_FILES)]
    if any(files):
        mine.set(_CREDENTIAL_FILES, ",".join(path for path in files if path))

    def password(key: str) -> str | None:
        characters = mine.getPassword(key)
        return None if characters is None else "".join(characters)

    return {
        name: password(f"{PREFIX}bucket.{bucket}.{name}") or password(PREFIX + name)
        for name in SECRETS
    }


def _to_hdfs(place: str, configuration: Any, session: SparkSession) -> Access:
    if str(configuration.get("hadoop.security.authentication")).lower() == "kerberos":
        raise Untranslatable("Kerberos, whose tickets Python workers do not have")
    host, _, port = place.partition(":")
    jvm: Any = session.sparkContext._jvm
    user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    return Access(
        "hdfs", {"host": host or "default", "port": int(port or 0), "user": str(user)}, ()
    )
