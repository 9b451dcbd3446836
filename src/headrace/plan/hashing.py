"""Hashes that are computed once: plans are deep, and looked up by value all the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_KEPT = "_hash"


def hashed_once(cls: type[T]) -> type[T]:
    """A frozen dataclass that remembers its hash; applied after ``@dataclass``."""
    compute: Callable[[Any], int] = cls.__hash__

    def remembered(self: Any) -> int:
        stored_hash = self.__dict__.get(_KEPT)
        if stored_hash is None:
            stored_hash = compute(self)
            # Beside the fields: equality and text know nothing of it.
            self.__dict__[_KEPT] = stored_hash
        return int(stored_hash)

    def state(self: Any) -> dict[str, Any]:
        # Strings hash differently in every process.
        return {name: value for name, value in self.__dict__.items() if name != _KEPT}

    cls.__hash__ = remembered  # type: ignore[method-assign]
    cls.__getstate__ = state  # type: ignore[method-assign]
    return cls
