"""How options of Hadoop's S3 connector become arguments of pyarrow's, without a server."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow.fs
import pytest
from pyspark import cloudpickle

from headrace.engine.execution.duckdb.remote_files import Access, store_of
from headrace.engine.execution.duckdb.s3_access import options_of, s3_access
from headrace.engine.execution.duckdb.untranslatable import Untranslatable

KEYS = {"fs.s3a.access.key": "AKIA-ME", "fs.s3a.secret.key": "very secret"}
GIVEN = {"access.key": "k", "secret.key": "s"}
MINE = {"access_key": "AKIA-ME", "secret_key": "very secret"}
AMAZON = {"bucket": "b", "scheme": "https"}
PACKAGE = "org.apache.hadoop.fs.s3a"
SDK = "software.amazon.awssdk.auth.credentials"


def access(options: dict[str, str], environment: dict[str, str] | None = None) -> Access:
    found = options_of("b", {f"fs.s3a.{key}": value for key, value in options.items()})
    return s3_access("b", found, environment or {})


def arguments(**options: str) -> dict[str, Any]:
    """The arguments for options with dots written as underscores, and keys that are there."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    found = access({"access.key": "AKIA-ME", "secret.key": "very secret", **given}).arguments
    return {name: value for name, value in found.items() if name not in MINE}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, AMAZON),
        ({"endpoint": "s3.amazonaws.com"}, AMAZON),
        ({"endpoint_region": "eu-west-1"}, {**AMAZON, "region": "eu-west-1"}),
        ({"endpoint": "s3.eu-west-1.amazonaws.com"}, {**AMAZON, "region": "eu-west-1"}),
        ({"endpoint": "s3-us-gov-west-1.amazonaws.com"}, {**AMAZON, "region": "us-gov-west-1"}),
        ({"endpoint_region": "sdk"}, AMAZON),
        (
            {"endpoint_region": "eu-west-1", "path_style_access": "true"},
            {
                **AMAZON,
                "region": "eu-west-1",
                "endpoint_override": "s3.eu-west-1.amazonaws.com",
            },
        ),
        (
            {"endpoint": "http://127.0.0.1:9000", "path_style_access": "true"},
            {
                "bucket": "b",
                "scheme": "http",
                "endpoint_override": "127.0.0.1:9000",
                "region": "us-east-1",
            },
        ),
        (
            # What the endpoint says of itself counts more than the option.
            {"endpoint": "https://store.example/", "connection_ssl_enabled": "false"},
            {
                **AMAZON,
                "endpoint_override": "store.example",
                "region": "us-east-1",
                "force_virtual_addressing": True,
            },
        ),
        (
            {
                "endpoint": "store.example:9000",
                "connection_ssl_enabled": "false",
                "path_style_access": "true",
                "endpoint_region": "north",
            },
            {
                "bucket": "b",
                "scheme": "http",
                "endpoint_override": "store.example:9000",
                "region": "north",
            },
        ),
        (
            {"proxy_host": "proxy", "proxy_port": "8080", "endpoint_region": "eu-west-1"},
            {
                **AMAZON,
                "region": "eu-west-1",
                "proxy_options": {"scheme": "http", "host": "proxy", "port": 8080},
            },
        ),
        (
            {
                "proxy_host": "proxy",
                "proxy_ssl_enabled": "true",
                "proxy_username": "me",
                "proxy_password": "hush",
            },
            {
                **AMAZON,
                "proxy_options": {
                    "scheme": "https",
                    "host": "proxy",
                    "port": 443,
                    "username": "me",
                    "password": "hush",
                },
            },
        ),
    ],
)
def test_where_the_server_is(options: dict[str, str], expected: dict[str, Any]) -> None:
    assert arguments(**options) == expected


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({"access.key": "k", "secret.key": "s"}, {}, {"access_key": "k", "secret_key": "s"}),
        (
            {"access.key": "k", "secret.key": "s", "session.token": "t"},
            {},
            {"access_key": "k", "secret_key": "s", "session_token": "t"},
        ),
        (
            # The provider that was chosen knows no tokens.
            {
                "access.key": "k",
                "secret.key": "s",
                "session.token": "t",
                "aws.credentials.provider": f"{PACKAGE}.SimpleAWSCredentialsProvider",
            },
            {},
            {"access_key": "k", "secret_key": "s"},
        ),
        (
            {"aws.credentials.provider": f"{PACKAGE}.AnonymousAWSCredentialsProvider"},
            {},
            {"anonymous": True},
        ),
        (
            # The environment has none, so the next one is asked.
            {
                "access.key": "k",
                "secret.key": "s",
                "aws.credentials.provider": f"{SDK}.EnvironmentVariableCredentialsProvider,\n"
                f"  {PACKAGE}.SimpleAWSCredentialsProvider",
            },
            {},
            {"access_key": "k", "secret_key": "s"},
        ),
        (
            {
                "access.key": "k",
                "secret.key": "s",
                "aws.credentials.provider": f"{SDK}.EnvironmentVariableCredentialsProvider,"
                f"{PACKAGE}.SimpleAWSCredentialsProvider",
            },
            {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "f"},
            {},
        ),
        # Nothing is given: a machine's own role.
        ({}, {}, {}),
        ({"aws.credentials.provider": f"{PACKAGE}.auth.IAMInstanceCredentialsProvider"}, {}, {}),
    ],
)
def test_whose_credentials(
    options: dict[str, str], environment: dict[str, str], expected: dict[str, Any]
) -> None:
    assert access(options, environment).arguments == {**AMAZON, **expected}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"aws.credentials.provider": f"{PACKAGE}.auth.AssumedRoleCredentialProvider"},
            "credentials of AssumedRoleCredentialProvider, which pyarrow cannot take over",
        ),
        (
            {"aws.credentials.provider": f"{PACKAGE}.SimpleAWSCredentialsProvider"},
            "no credentials: none of SimpleAWSCredentialsProvider has any",
        ),
        ({"encryption.algorithm": "SSE-KMS"}, "the option fs.s3a.encryption.algorithm"),
        ({"requester.pays.enabled": "true"}, "the option fs.s3a.requester.pays.enabled"),
        ({"endpoint": "https://host/path"}, "the option fs.s3a.endpoint, which is more"),
    ],
)
def test_what_tasks_cannot_do_as_spark_does(options: dict[str, str], reason: str) -> None:
    with pytest.raises(Untranslatable, match=reason):
        access(options if "aws.credentials.provider" in options else {**options, **GIVEN})


def test_options_that_ask_for_nothing_are_no_hindrance() -> None:
    asked = {"encryption.algorithm": "", "requester.pays.enabled": "false", "acl.default": " "}
    assert access({**asked, **GIVEN}).arguments["access_key"] == "k"


def test_options_of_a_bucket_take_the_place_of_general_ones() -> None:
    configured = {
        **KEYS,
        "fs.s3a.endpoint": "store.example",
        "fs.s3a.bucket.b.c.access.key": "of b.c",
        "fs.s3a.bucket.b.endpoint": "other.example",
        "fs.s3a.bucket.b.secret.key": "another secret",
    }
    assert options_of("b", configured) == {
        "access.key": "AKIA-ME",
        "secret.key": "another secret",
        "endpoint": "other.example",
        # Of a bucket "b" this would be an option "c.access.key", which nobody reads.
        "c.access.key": "of b.c",
    }
    assert options_of("b.c", configured)["access.key"] == "of b.c"
    assert options_of("d", configured)["endpoint"] == "store.example"


def test_secrets_from_elsewhere_count_more() -> None:
    kept = {"secret.key": "from a file"}
    found = s3_access("b", options_of("b", KEYS), {}, kept.get)
    assert found.arguments["access_key"] == "AKIA-ME"
    assert found.arguments["secret_key"] == "from a file"


def test_secrets_are_never_shown() -> None:
    found = access(
        {
            "access.key": "AKIA-ME",
            "secret.key": "very secret",
            "session.token": "a token",
            "proxy.host": "proxy",
            "proxy.username": "me",
            "proxy.password": "hush",
        }
    )
    for shown in (repr(found), str(found), repr({"stores": {"s3a://b": found}}), f"{found!r:>80}"):
        assert not any(word in shown for word in ("AKIA", "secret", "token", "hush"))
    assert found.hidden("denied: AKIA-ME with very secret, a token, hush") == (
        "denied: *** with ***, ***, ***"
    )
    # They do travel with a task.
    again = pickle.loads(cloudpickle.dumps(found))
    assert again.arguments == found.arguments


def test_pyarrow_takes_all_arguments() -> None:
    given = arguments(
        endpoint="store.example", proxy_host="proxy", proxy_port="80", endpoint_region="north"
    )
    del given["bucket"]
    assert isinstance(pyarrow.fs.S3FileSystem(**given, **MINE), pyarrow.fs.S3FileSystem)


def test_the_store_of_a_path() -> None:
    assert store_of("/local/file") is None
    assert store_of("s3a://bucket/a b/c") == "s3a://bucket"
    assert store_of("hdfs://name:8020/x") == "hdfs://name:8020"
    assert store_of("hdfs:///x") == "hdfs://"
