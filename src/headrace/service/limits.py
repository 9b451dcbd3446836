"""How much may be asked for, and which formats, paths and options may reach Spark.

What a request names goes to Spark's readers and to sinks only if whoever started the service has
allowed its kind. Nothing is allowed unless it is said; results that the engine keeps itself, and
sinks that write nothing, need no leave.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlparse

from headrace.errors import HeadraceError
from headrace.pipeline import QuerySpec, ViewSpec
from headrace.redaction import looks_secret
from headrace.service.rights import NotAllowed
from headrace.statements import Spec

_HARMLESS_SINKS = ("results", "noop")
_GLOB = re.compile(r"[*?\[\]{}]")
#: Formats whose rows lie at a path; those of a name may name a class, too.
_AT_PATHS = ("parquet", "json", "csv", "orc", "avro", "xml", "text")


class TooMuch(HeadraceError):
    """More than a limit allows."""

    condition = "LIMIT_REACHED"


@dataclass(frozen=True)
class Limits:
    """How much one service takes."""

    queries_per_tenant: int = 2_000
    relations: int = 1_000
    request_bytes: int = 4_000_000
    statement_letters: int = 200_000
    batch: int = 1_000
    page_rows: int = 10_000
    waiting_commands: int = 2_000
    followers: int = 100

    def check_letters(self, text: str) -> None:
        if len(text) > self.statement_letters:
            raise TooMuch(
                f"the text has {len(text)} letters; at most {self.statement_letters} are read"
            )


@dataclass(frozen=True)
class Allowed:
    """What requests may name of the world outside."""

    formats: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    sink_paths: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    everything: bool = False

    def check(self, spec: Spec) -> None:
        """Refuse what a request may not name."""
        if self.everything or isinstance(spec, ViewSpec):
            return
        if isinstance(spec, QuerySpec):
            sink = spec.sink
            if sink.format not in _HARMLESS_SINKS and sink.format != "parquet":
                raise NotAllowed(
                    f"a request cannot write to a sink of the format {sink.format!r}",
                    hint="use results, or parquet with a path that was allowed",
                )
            self._check_options(sink.options)
            self._check_path(sink.path, self.sink_paths, "--allow-sink-path")
            return
        if spec.format not in self.formats:
            raise NotAllowed(
                f"requests may not read the format {spec.format!r}",
                hint=f"start the service with --allow-format {spec.format}"
                if re.fullmatch(r"[a-z0-9_-]+", spec.format)
                else None,
            )
        self._check_options(spec.options)
        if spec.format in _AT_PATHS and spec.path is None:
            raise NotAllowed(f"a {spec.format} {type(spec).__name__[:-4].lower()} needs a path")
        self._check_path(spec.path, self.paths, "--allow-path")

    def _check_options(self, options: Mapping[str, str]) -> None:
        allowed = {option.lower() for option in self.options}
        for key in options:
            if looks_secret(key):
                raise NotAllowed(
                    f"the option {key!r} looks like a secret, and would be written down",
                    hint="name the stream in the pipeline file, with ${VARIABLE}",
                )
            # A path by another door.
            if key.lower() not in allowed or key.lower() in ("path", "paths"):
                raise NotAllowed(
                    f"requests may not set the option {key!r}",
                    hint="start the service with --allow-option and its name",
                )

    @staticmethod
    def _check_path(path: str | None, prefixes: Iterable[str], option: str) -> None:
        if path is None:
            return
        if not any(is_below(path, prefix) for prefix in prefixes):
            raise NotAllowed(
                f"requests may not use the path {path!r}",
                hint=f"start the service with {option} and a folder above it",
            )


def is_below(path: str, prefix: str) -> bool:
    """Whether a path is a folder or in it, whatever it is made of.

    >>> is_below("/data/in/a", "/data/in"), is_below("/data/inner", "/data/in")
    (True, False)
    >>> is_below("/data/in/../x", "/data"), is_below("file:/data/x", "/data")
    (False, True)
    >>> is_below("s3a://b/in/x", "s3a://b/in"), is_below("s3a://c/in/x", "s3a://b/in")
    (True, False)
    """
    if "\\" in path or "\0" in path or any(part == ".." for part in path.split("/")):
        return False
    one, other = urlparse(path), urlparse(prefix)
    if "%" in path and one.scheme:
        return False
    local = one.scheme in ("", "file") and other.scheme in ("", "file")
    if not local and (one.scheme, one.netloc) != (other.scheme, other.netloc):
        return False
    if local and (one.netloc or other.netloc):
        return False
    # What a URL would call a query or a fragment is part of a file's name.
    inner = path if not one.scheme else path[path.index(":") + 1 :].removeprefix(f"//{one.netloc}")
    outer = prefix if not other.scheme else other.path
    inner, outer = posixpath.normpath(inner), posixpath.normpath(outer)
    if not inner.startswith("/"):
        return False
    if local:
        fixed = _GLOB.split(inner)[0]
        if fixed != inner:
            # What a pattern may come to is looked at where it begins; it cannot lead out of there
            # but by a link.
            fixed = fixed.rpartition("/")[0] or "/"
        inner, outer = os.path.realpath(fixed), os.path.realpath(outer)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
