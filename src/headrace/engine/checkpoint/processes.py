"""Which process this is, and whether another one that left its name is still alive.

A number alone does not tell: numbers are used again, and containers count from one each. So a
process is named by its machine's boot, its space of numbers, and the moment it began; where these
are those of another place, this machine cannot know.

This module goes to the executors by value and needs nothing but Python.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """A process as it can be told from all others; ``boot`` and later ones are empty if unknown."""

    host: str
    pid: int
    boot: str = ""
    namespace: str = ""
    began: str = ""


def process_of(pid: int) -> Process:
    """A process of this machine."""
    return Process(
        socket.gethostname(),
        pid,
        _read("/proc/sys/kernel/random/boot_id").strip(),
        _link("/proc/self/ns/pid"),
        _began(pid) or "",
    )


def this_process() -> Process:
    return process_of(os.getpid())


def is_alive(process: Process) -> bool | None:
    """Whether it lives; None where that cannot be known from here."""
    here = this_process()
    if (here.host, here.boot, here.namespace) != (process.host, process.boot, process.namespace):
        return None
    if here.began and process.began:
        return _began(process.pid) == process.began
    if os.name != "posix":
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def has_ended(process: Process) -> bool:
    """Whether a process of this machine, which left its name on a disk of it, is surely gone."""
    here = this_process()
    if process.host == here.host and process.boot and here.boot and process.boot != here.boot:
        return True
    return is_alive(process) is False


def _began(pid: int) -> str | None:
    """When a process began, in ticks since the boot; None if there is none, or it has ended."""
    # The name, in parentheses, may hold anything; state and times follow it.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return fields[19]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
