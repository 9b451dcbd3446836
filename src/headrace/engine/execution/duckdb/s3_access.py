"""From Hadoop's options of an S3 bucket to the arguments of pyarrow's file system.

Tasks must do to a bucket what Spark itself would do: as the same user, at the same server, and with
the same protection of what is stored. An option that matters for one of these and has no equal in
pyarrow keeps tasks away from the bucket, with the reason. Options that only decide how fast the
connector is are left aside.

The options are those of Hadoop's S3A connector, in its documents "Connecting to an Amazon S3
Bucket through the S3A Connector" and "Authenticating with S3".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.engine.execution.duckdb.remote_files import Access
from headrace.engine.execution.duckdb.untranslatable import Untranslatable

PREFIX = "fs.s3a."
#: Where secrets may be, which are not always in the configuration itself.
SECRETS = ("access.key", "secret.key", "session.token", "proxy.password")

#: Options by which what is stored is protected, paid for or found, with the values that ask for
#: nothing.
_REFUSED = {
    "encryption.algorithm": "",
    "server-side-encryption-algorithm": "",
    "acl.default": "",
    "accesspoint.arn": "",
    "accesspoint.required": "false",
    "requester.pays.enabled": "false",
    "endpoint.fips": "false",
    "create.storage.class": "",
    "signing-algorithm": "",
    "s3.signing-algorithm": "",
    "custom.signers": "",
    "delegation.token.binding": "",
    "proxy.domain": "",
    "proxy.workstation": "",
}
_PROVIDERS = (
    "TemporaryAWSCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
)
#: Providers whose places pyarrow looks at by itself, where it is given nothing: those of a machine.
_AMBIENT = frozenset(
    {
        "IAMInstanceCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "ContainerCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "WebIdentityTokenFileCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "DefaultCredentialsProvider",
        "DefaultAWSCredentialsProviderChain",
    }
)
_CENTRAL = "s3.amazonaws.com"
_REGIONAL = re.compile(r"s3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?")
_ADDRESS = re.compile(r"[\d.]+(:\d+)?|\[.*|localhost(:\d+)?")


def options_of(bucket: str, configured: Mapping[str, str]) -> dict[str, str]:
    """The options of one bucket, without their prefix: its own take the place of general ones.

    >>> options_of("b", {"fs.s3a.access.key": "all", "fs.s3a.bucket.b.access.key": "b's"})
    {'access.key': "b's"}
    """
    own = f"{PREFIX}bucket.{bucket}."
    general = {
        key.removeprefix(PREFIX): value
        for key, value in configured.items()
        if key.startswith(PREFIX) and not key.startswith(f"{PREFIX}bucket.")
    }
    # The connector itself is not a matter of buckets.
    special = {
        key.removeprefix(own): value for key, value in configured.items() if key.startswith(own)
    }
    special.pop("impl", None)
    return {name: value.strip() for name, value in (general | special).items()}


def s3_access(
    bucket: str,
    options: Mapping[str, str],
    environment: Mapping[str, str],
    secret: Callable[[str], str | None] | None = None,
) -> Access:
    """How tasks reach a bucket; raises ``Untranslatable`` where they cannot do so as Spark does.

    ``options`` are those of the bucket; ``secret`` looks one up that may be kept elsewhere.
    """
    if "@" in bucket:
        raise Untranslatable("credentials in the path, which Hadoop ignores")
    for name, harmless in _REFUSED.items():
        if options.get(name, "").lower() not in ("", harmless):
            raise Untranslatable(f"the option {PREFIX}{name}, which tasks cannot follow")

    def looked_up(name: str) -> str:
        hidden = secret(name) if secret is not None else None
        return hidden or options.get(name, "")

    arguments: dict[str, Any] = {"bucket": bucket}
    arguments |= _credentials(options, environment, looked_up)
    arguments |= _server(options)
    arguments |= _proxy(options, looked_up)
    secrets = [looked_up(name) for name in SECRETS]
    return Access("s3", arguments, secrets)


def _credentials(
    options: Mapping[str, str], environment: Mapping[str, str], secret: Callable[[str], str]
) -> dict[str, Any]:
    """Those of the first provider that has some, as Hadoop asks them."""
    key, password, token = map(secret, ("access.key", "secret.key", "session.token"))
    listed = re.split(r"[\s,]+", options.get("aws.credentials.provider", "").strip())
    providers = [name.rpartition(".")[2] for name in listed if name] or list(_PROVIDERS)
    for provider in providers:
        match provider:
            case "TemporaryAWSCredentialsProvider":
                if key and password and token:
                    return {"access_key": key, "secret_key": password, "session_token": token}
            case "SimpleAWSCredentialsProvider":
                if key and password:
                    return {"access_key": key, "secret_key": password}
            case "AnonymousAWSCredentialsProvider" | "AnonymousCredentialsProvider":
                return {"anonymous": True}
            case "EnvironmentVariableCredentialsProvider":
                if environment.get("AWS_ACCESS_KEY_ID"):
                    return {}
            case _ if provider in _AMBIENT:
                return {}
            case _:
                raise Untranslatable(f"credentials of {provider}, which pyarrow cannot take over")
    raise Untranslatable(f"no credentials: none of {', '.join(providers)} has any")


def _server(options: Mapping[str, str]) -> dict[str, Any]:
    endpoint, region = options.get("endpoint", ""), options.get("endpoint.region", "")
    secure = options.get("connection.ssl.enabled", "true").lower() != "false"
    by_path = options.get("path.style.access", "false").lower() == "true"
    scheme, mark, host = endpoint.rpartition("://")
    scheme = scheme.lower() if mark else ("https" if secure else "http")
    host = host.rstrip("/")
    if "/" in host or scheme not in ("http", "https"):
        raise Untranslatable(f"the option {PREFIX}endpoint, which is more than a host and a port")
    regional = _REGIONAL.fullmatch(host)
    if regional is not None:
        region = region or regional[1]
    if region in ("sdk", "ec2", "external"):
        # Hadoop asks its surroundings then; so does pyarrow.
        region = ""
    arguments: dict[str, Any] = {"scheme": scheme}
    if host in ("", _CENTRAL) or regional is not None:
        # Amazon's own, which needs no name: where a bucket is can be asked of it.
        if region:
            arguments["region"] = region
            if by_path:
                arguments["endpoint_override"] = host if regional else f"s3.{region}.amazonaws.com"
        return arguments
    arguments |= {"endpoint_override": host, "region": region or "us-east-1"}
    if not by_path and not _ADDRESS.fullmatch(host):
        # A bucket cannot be in front of a number.
        arguments["force_virtual_addressing"] = True
    return arguments


def _proxy(options: Mapping[str, str], secret: Callable[[str], str]) -> dict[str, Any]:
    host = options.get("proxy.host", "")
    if not host:
        return {}
    secure = options.get("proxy.ssl.enabled", "false").lower() == "true"
    proxy: dict[str, Any] = {
        "scheme": "https" if secure else "http",
        "host": host,
        "port": int(options.get("proxy.port") or (443 if secure else 80)),
    }
    if options.get("proxy.username"):
        proxy |= {"username": options["proxy.username"], "password": secret("proxy.password")}
    return {"proxy_options": proxy}
