"""Which stores tasks may be sent to: found out once, told once, and never tried in vain again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from headrace import Headrace
from headrace.engine.execution.duckdb.stores import FORGIVEN, Stores, access_to
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.engine.execution.executor import Executor
from headrace.settings import read_settings
from tests.support.engine import forced

KEYS = {"fs.s3a.access.key": "AKIA-ME", "fs.s3a.secret.key": "very secret"}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    found = spark.newSession()
    for key, value in KEYS.items():
        found.conf.set(key, value)
    return found


class Trials:
    """Tasks that find what they are told to."""

    def __init__(self, *reasons: str | None) -> None:
        self.reasons = list(reasons)
        self.asked: list[Mapping[str, Any]] = []

    def __call__(self, spec: Mapping[str, Any]) -> str | None:
        self.asked.append(spec)
        return self.reasons.pop(0)


def test_a_store_is_tried_once(session: SparkSession) -> None:
    stores, trials = Stores(session), Trials(None)
    for number in range(3):
        written = [f"s3a://b/state/rows/{number}"]
        stores.check(["/local/x", "s3a://b/in/1.parquet"], written, trials)
    (asked,) = trials.asked
    assert asked["folder"] == "s3a://b/state/rows"
    assert list(stores.accesses()) == ["s3a://b"]
    assert stores.take_news() == []


def test_what_is_only_read_is_not_written_to(session: SparkSession) -> None:
    stores, trials = Stores(session), Trials(None, None)
    stores.check(["s3a://b/in/1.parquet"], [], trials)
    assert (trials.asked[0]["file"], trials.asked[0]["folder"]) == ("s3a://b/in/1.parquet", None)
    stores.check([], ["s3a://b/out/1"], trials)
    assert trials.asked[1]["folder"] == "s3a://b/out"


def test_a_store_that_failed_its_trial_is_sparks(
    session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    stores, trials = Stores(session), Trials("denied to very secret")
    with caplog.at_level(logging.WARNING, "headrace"):
        for _ in range(3):
            with pytest.raises(Untranslatable, match=r"^s3a://b, which tasks cannot reach: denied"):
                stores.check([], ["s3a://b/state/1"], trials)
    assert len(trials.asked) == 1
    told = "Spark runs what reads or writes s3a://b, because tasks cannot reach it: denied to ***"
    assert caplog.messages == [told]
    assert stores.take_news() == [told]
    assert stores.take_news() == []
    assert stores.accesses() == {}


def test_without_a_trial_nothing_is_tried(session: SparkSession) -> None:
    stores = Stores(session)
    stores.check(["s3a://b/1.parquet"], ["s3a://b/2"], None)
    assert stores.untried() == ["s3a://b"]


def test_a_store_that_fails_now_and_then_is_forgiven(session: SparkSession) -> None:
    stores = Stores(session)
    stores.check([], ["s3a://b/state/1"], Trials(None))
    for _ in range(FORGIVEN):
        stores.failed("s3a://b", "slow down")
        stores.check([], ["s3a://b/state/1"], Trials())
    stores.failed("s3a://b", "slow down")
    with pytest.raises(Untranslatable, match="slow down"):
        stores.check([], ["s3a://b/state/1"], Trials())


def test_the_sessions_configuration_counts(session: SparkSession) -> None:
    session.conf.set("fs.s3a.endpoint", "http://127.0.0.1:9000")
    session.conf.set("fs.s3a.bucket.own.access.key", "AKIA-OWN")
    assert access_to("s3a://b", session).arguments["access_key"] == "AKIA-ME"
    own = access_to("s3a://own", session)
    assert own.arguments["access_key"] == "AKIA-OWN"
    assert own.arguments["endpoint_override"] == "127.0.0.1:9000"
    # The engine works in a session of its own, which is to reach what this one does.
    engines = Executor(session, read_settings({})).session
    assert access_to("s3a://own", engines).arguments == own.arguments


def test_secrets_from_credential_files(session: SparkSession, tmp_path: Path) -> None:
    jvm: Any = session.sparkContext._jvm
    place = f"localjceks://file{tmp_path}/keys.jceks"
    configuration = session._jsparkSession.sessionState().newHadoopConf()
    configuration.set("hadoop.security.credential.provider.path", place)
    factory = jvm.org.apache.hadoop.security.alias.CredentialProviderFactory
    provider = factory.getProviders(configuration).get(0)
    array = session.sparkContext._gateway.new_array(jvm.char, 6)
    for position, letter in enumerate("hidden"):
        array[position] = letter
    provider.createCredentialEntry("fs.s3a.secret.key", array)
    provider.flush()
    session.conf.unset("fs.s3a.secret.key")
    session.conf.set("fs.s3a.bucket.b.security.credential.provider.path", place)
    found = access_to("s3a://b", session)
    assert found.arguments["secret_key"] == "hidden"
    assert found.hidden("it is hidden") == "it is ***"
    # Of another bucket it says nothing; what is left is a machine's own role.
    assert "secret_key" not in access_to("s3a://c", session).arguments


@pytest.mark.parametrize(
    ("store", "options", "reason"),
    [
        ("gs://b", {}, "pyarrow is not set up for gs"),
        ("abfss://c@account", {}, "pyarrow is not set up for abfss"),
        ("s3://b", {}, "the connector of s3 is unknown"),
        ("s3://b", {"fs.s3.impl": "com.example.Fast"}, "the connector of s3 is com.example.Fast"),
        ("hdfs://name", {"hadoop.security.authentication": "kerberos"}, "Kerberos"),
    ],
)
def test_stores_that_cannot_be_sparks_equal(
    session: SparkSession, store: str, options: dict[str, str], reason: str
) -> None:
    for key, value in options.items():
        session.conf.set(key, value)
    with pytest.raises(Untranslatable, match=reason):
        access_to(store, session)


def test_other_schemes_of_the_same_connector(session: SparkSession) -> None:
    session.conf.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    assert access_to("s3://b", session).arguments == access_to("s3a://b", session).arguments


def test_hdfs_is_reached_as_the_same_user(session: SparkSession) -> None:
    found = access_to("hdfs://name:8020", session)
    assert found.kind == "hdfs"
    assert found.arguments["host"] == "name"
    assert found.arguments["port"] == 8020
    assert found.arguments["user"]


def test_explain_knows_where_the_checkpoint_is(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing has run, and nothing is tried: there is no such store."""
    EventFiles(10, 1).write(tmp_path / "a")
    sql = "SELECT k, count(*) AS n FROM a GROUP BY k, window(ts, '1 second')"
    for checkpoint, engine in (("gs://b/state", "Spark, because of gs://b, which"), ("", "DuckDB")):
        with forced(spark, "auto"):
            hr = Headrace(spark, checkpoint=checkpoint or str(tmp_path / "state"))
        files = spark.readStream.schema(EVENTS_SCHEMA).parquet(str(tmp_path / "a"))
        hr.stream("a", files, time="ts", delay="1 second")
        lines = hr.sql(sql).explanation().split("== Executors ==\n")[1].strip().splitlines()
        assert lines
        assert all(f": {engine}" in line for line in lines), lines
