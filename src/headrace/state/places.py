"""Paths in commits: relative to a folder, so that it can be moved, and never out of it."""

from __future__ import annotations

from headrace.state.sealed import Damaged


def inside(folder: str, path: str) -> str:
    """A path as seen from a folder that it is in.

    >>> inside("/data/state", "/data/state/epochs/1")
    'epochs/1'
    """
    relative = path.removeprefix(f"{folder}/")
    if relative == path or not _is_relative(relative):
        raise Damaged(f"{path} is not in {folder}")
    return relative


def full(folder: str, relative: str) -> str:
    """The path of what is in a folder; whatever leads out of it is refused.

    >>> full("/data", "../etc/passwd")
    Traceback (most recent call last):
    headrace.state.sealed.Damaged: '../etc/passwd' leads out of its folder
    """
    if not _is_relative(relative):
        raise Damaged(f"{relative!r} leads out of its folder")
    return f"{folder}/{relative}"


def is_plain_name(name: str) -> bool:
    return "/" not in name and _is_relative(name)


def _is_relative(path: str) -> bool:
    return not any(part in ("", ".", "..") or "\0" in part for part in path.split("/"))
