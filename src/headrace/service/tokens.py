"""Tokens: who made one may use a service, as what and for which tenant.

The file holds digests only. A token is 256 random bits, so a plain digest is as good as a slow one:
there is nothing to guess. It is shown once, when it is made.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.service.rights import Caller, Role

_FORMAT = 1
_PREFIX = "headrace_"
_NAME = re.compile(r"[a-z0-9_]{1,60}")


class TokenError(HeadraceError):
    """A file of tokens that cannot be read, or a token that cannot be made."""

    condition = "INVALID_TOKENS"


@dataclass(frozen=True)
class Token:
    """What is kept of a token."""

    name: str
    role: str
    tenant: str
    digest: str
    created: str

    @property
    def caller(self) -> Caller:
        return Caller(self.name, Role[self.role.upper()], self.tenant)


class TokenFile:
    """The tokens of a service; a file that is changed while it runs is read again."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._read_at: tuple[int, int, int] | None = None
        self._by_digest: dict[str, Token] = {}

    def all(self) -> list[Token]:
        self._refresh()
        return sorted(self._by_digest.values(), key=lambda token: token.name)

    def caller(self, secret: str) -> Caller | None:
        """Whose token this is."""
        self._refresh()
        digest = _digest(secret)
        token = self._by_digest.get(digest)
        if token is None or not hmac.compare_digest(token.digest, digest):
            return None
        return token.caller

    def create(self, name: str, role: Role, tenant: str = "") -> str:
        """A new token, which is not kept."""
        for what, word in (("token", name), ("tenant", tenant or "x")):
            if not _NAME.fullmatch(word):
                raise TokenError(
                    f"{word!r} cannot be the name of a {what}",
                    hint="use up to 60 lower-case letters, digits and '_'",
                )
        tokens = self.all()
        if any(token.name == name for token in tokens):
            raise TokenError(
                f"there is a token named {name!r} already", hint="choose another, or revoke it"
            )
        secret = _PREFIX + secrets.token_urlsafe(32)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        self._write([*tokens, Token(name, role.name.lower(), tenant, _digest(secret), created)])
        return secret

    def revoke(self, name: str) -> None:
        tokens = self.all()
        left = [token for token in tokens if token.name != name]
        if len(left) == len(tokens):
            raise TokenError(f"there is no token named {name!r}")
        self._write(left)

    def _write(self, tokens: list[Token]) -> None:
        text = json.dumps({"format": _FORMAT, "tokens": [asdict(t) for t in tokens]}, indent=1)
        temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, self.path)
        except OSError as error:
            raise TokenError(f"cannot write {self.path}: {error.strerror}") from None

    def _refresh(self) -> None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._by_digest, self._read_at = {}, None
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen == self._read_at:
            return
        try:
            body = json.loads(self.path.read_text(encoding="utf-8"))
            if body["format"] != _FORMAT:
                raise ValueError(f"format {body['format']}")
            tokens = [Token(**token) for token in body["tokens"]]
            for token in tokens:
                Role[token.role.upper()]
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Nobody is let in by a file that cannot be read.
            self._by_digest, self._read_at = {}, None
            raise TokenError(f"{self.path} is no file of tokens: {error}") from None
        self._by_digest = {token.digest: token for token in tokens}
        self._read_at = seen


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
