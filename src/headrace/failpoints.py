"""Named places in an epoch at which a test can make the process die.

``HEADRACE_DIE_AT=commit.before:3`` kills the process, as ``kill -9`` would, the third time it
passes the place ``commit.before``. Nothing is ever raised: a crash leaves no chance to clean up,
and that is what the crash tests are about.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "HEADRACE_DIE_AT"

_passed: Counter[str] = Counter()


def failpoint(place: str) -> None:
    """Pass a place; the process dies here if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    _passed[place] += 1
    name, _, count = wanted.partition(":")
    if place == name and _passed[place] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
