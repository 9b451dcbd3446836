"""Chaos: a process is killed again and again, and in the end everything is there, once.

    python -m tests.engine.crashes.chaos --kills 50 --seed 7

Queries of every kind run over one checkpoint, in a process that is killed with SIGKILL at random
moments and started again, while files come in. Meanwhile sinks refuse their rows and are mended,
two queries fail and are decided for, and others try to start on the same checkpoint. Then the
process runs to the end, and what all queries have put out is compared with the oracle.

Which moments, sinks and rows follows from the seed; what exactly a process is about at such a
moment is up to the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pyarrow.parquet as parquet

from tests.engine.crashes.chaos_child import REFUSED, STOPPED
from tests.engine.crashes.chaos_plot import STREAMS, Data, Row
from tests.engine.crashes.chaos_process import PATIENCE, Process
from tests.engine.crashes.chaos_verdict import FOLDERS, PRINTED, Tallies, judge

#: So many files of a stream may lie there unread.
_BACKLOG = 3
#: If it is not killed by itself at its place after so many epochs, somebody else does it.
_EPOCHS_TO_A_PLACE = 12
#: So long (seconds) nothing must change until it counts as being at rest.
_REST = 1.0
#: Places and how often they are passed until the process dies; several stores and sinks an epoch.
_PLACES = {
    "intent.before": 4,
    "intent.after": 4,
    "state.after": 30,
    "sink.after": 30,
    "commit.before": 4,
    "flush.after": 4,
    "commit.after": 4,
    "publish.after": 4,
    "deliver.after": 3,
    "returned.bids": 4,
    "returned.asks": 4,
}


@dataclass(frozen=True)
class Life:
    """One process: when it dies, and what befalls it before.

    It dies at a ``place``; or so many ``seconds`` after it has done so many ``epochs``, none while
    it is still starting. After its first epoch the function of ``refuses`` begins to refuse rows,
    the folder of ``loses`` gives way to a file, an ``intruder`` comes; ``mends`` is after its
    third. What is broken when it dies stays so, but for folders, without which none starts.
    """

    epochs: int = 0
    seconds: float = 0.0
    place: str | None = None
    refuses: str | None = None
    loses: str | None = None
    mends: bool = False
    intruder: bool = False
    #: Whether the process dies alone; its JVM finds out and ends by itself.
    alone: bool = False


def random_lives(random: Random, kills: int) -> list[Life]:
    """Lives of all kinds; things break in every sixth, and are mended two later."""
    lives = []
    for number in range(kills):
        life = Life(seconds=random.uniform(0, 3), alone=random.random() < 0.25)
        kind = random.choice(["start", "start", "epochs", "place", "place"])
        if number % 6 in (1, 3, 4):
            life = replace(life, epochs=random.randint(4, 7), seconds=random.uniform(0, 0.8))
        elif kind == "epochs":
            life = replace(life, epochs=random.randint(1, 6), seconds=random.uniform(0, 0.8))
        elif kind == "place":
            place = random.choice(list(_PLACES))
            life = replace(life, place=f"{place}:{random.randint(1, _PLACES[place])}")
        if number % 6 == 1:
            life = replace(life, refuses=random.choice(PRINTED))
        elif number % 6 == 3:
            life = replace(life, mends=True)
        elif number % 6 == 4:
            life = replace(life, loses=random.choice(FOLDERS), mends=random.random() < 0.5)
        if number % 25 == 3:
            life = replace(life, intruder=True)
        lives.append(life)
    return lives


class Failed(Exception):
    """What must not be."""


def _must_be_the_same(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    changed = sorted(dict(before.items() ^ after.items()))
    if changed:
        raise Failed(f"a start that was refused has changed {', '.join(changed)}")


@dataclass
class Chaos:
    """A folder, what is in it, and what has befallen it."""

    folder: Path
    data: Data
    random: Random
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    tell: Callable[[str], None] = print
    tallies: Tallies = field(default_factory=Tallies)
    files: dict[str, int] = field(default_factory=lambda: {s.name: 0 for s in STREAMS})

    def __post_init__(self) -> None:
        self.checkpoint = self.folder / "checkpoint"
        self._known: tuple[str, dict[str, Any]] = ("", {})
        self._starts = 0
        self._left: Process | None = None
        #: Queries whose sinks are broken, and those of them for which rows were seen to wait.
        self._broken: set[str] = set()
        self._waited: set[str] = set()
        self._away: dict[str, Path] = {}
        self._mended: list[str] = []
        self._asked = False
        for name in ("refuses", "logs", "away", "out", *(f"in/{s.name}" for s in STREAMS)):
            (self.folder / name).mkdir(parents=True)
        self.planted = self._plant()

    # Surroundings

    def _plant(self) -> dict[Path, bytes]:
        """Files of somebody else, wherever we write, and under names like ours."""
        out = self.folder / "out"
        places = [
            self.folder / "notes.txt",
            self.folder / "checkpoint-before" / "headrace.json",
            self.folder / "checkpoint-before" / "epochs" / "0000000001.commit",
            self.folder / "checkpoint-before" / "state" / "rows" / "0000000001-t1",
            self.checkpoint / ".notes",
            out / "notes.txt",
            out / "epoch=1" / "part-0.parquet",
            out / "neighbour" / "epoch=1" / "part-0.parquet",
            out / "neighbour" / "_headrace" / "near" / "0000000001-x-t1" / "part-0.parquet",
        ]
        places += [out / name / hidden for name in FOLDERS for hidden in ("_notes", ".old/1")]
        planted = {}
        for number, place in enumerate(places):
            place.parent.mkdir(parents=True, exist_ok=True)
            planted[place] = f"nobody may touch this: {number}\n".encode()
            place.write_bytes(planted[place])
        return planted

    def _add_file(self, stream: str, rows: Sequence[Row]) -> None:
        """Files appear at once and are ordered by their times, as the file source wants it."""
        number = self.files[stream]
        folder = self.folder / "in" / stream
        hidden, final = folder / f".{number:05d}.parquet", folder / f"{number:05d}.parquet"
        kind = next(s for s in STREAMS if s.name == stream)
        parquet.write_table(kind.table(rows), hidden)
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        self.planted[final] = hidden.read_bytes()
        os.replace(hidden, final)
        self.files[stream] = number + 1

    def feed(self) -> None:
        """One more file of a stream of which few lie there unread; streams stay side by side."""
        stream = self.random.choice(STREAMS).name
        done = self.commit().get("batches", {}).get(stream, -1) + 1
        ahead = self.files[stream] - min(self.files.values())
        if ahead < _BACKLOG and self.files[stream] - done < _BACKLOG:
            self._add_file(stream, self.data.rows(stream, self.files[stream]))

    def commit(self) -> dict[str, Any]:
        """The last commit; nothing before the first."""
        epochs = self.checkpoint / "epochs"
        names = os.listdir(epochs) if epochs.is_dir() else []
        newest_name = max((n for n in names if n.endswith(".commit")), default="")
        if newest_name and newest_name != self._known[0]:
            with suppress(FileNotFoundError):  # one later has come, and this one has gone
                self._known = newest_name, json.loads((epochs / newest_name).read_text())
        return self._known[1]

    def epoch(self) -> int:
        return int(self.commit().get("epoch", 0))

    def failed_queries(self) -> list[str]:
        branches = self.commit().get("branches", {})
        return [name for name, branch in branches.items() if branch["failure"]]

    def _look_for_waiting_rows(self) -> None:
        """A sink failure counts once rows were seen to wait for it."""
        commit = self.commit()
        states = [commit, *(b["state"] for b in commit.get("branches", {}).values())]
        for name in self._broken - self._waited:
            for state in states:
                outbox = state.get("arrangements", {}).get(f"outbox-{name}")
                if outbox and outbox["files"]:
                    self._waited.add(name)
                    self.tallies.sink_failures += 1
                    break

    # One life after the other

    def live(self, life: Life) -> None:
        """Start the process until it was killed as it should be."""
        while not self._live_once(life):
            life = replace(life, refuses=None, loses=None, intruder=False)
        self.tallies.kills += 1

    def _live_once(self, life: Life) -> bool:
        self._decide()
        process = self._start("run", life.place)
        first, waited = self.epoch(), time.monotonic()
        befallen = False
        while (code := process.ended()) is None:
            if time.monotonic() - waited > PATIENCE:
                process.kill()
                raise Failed(f"it hangs: {process.log}")
            if self.random.random() < 0.2:
                self.feed()
            self._look_for_waiting_rows()
            if process.says("running"):
                done = self.epoch() - first
                if not befallen and done >= 1:
                    befallen = True
                    self._befall(life, process)
                if life.mends and done >= 3:
                    self._mend(process)
                if done >= (_EPOCHS_TO_A_PLACE if life.place else life.epochs):
                    self.tallies.places_missed += life.place is not None
                    self._kill(process, life)
            elif life.epochs == 0 and life.place is None and process.says("session"):
                self._kill(process, life)
            time.sleep(0.02)
        return self._died(life, process, code)

    def _died(self, life: Life, process: Process, code: int) -> bool:
        if self._left is not None:
            self._left.kill()
        self._left = process
        if not life.alone:
            process.kill()
        lost_folder = bool(self._away)
        self._look_for_waiting_rows()
        self._mend_folders()
        self.tell(f"{self.tallies.kills + 1}: {life}, epoch {self.epoch()}, files {self.files}")
        if code == -signal.SIGKILL:
            return True
        if code == STOPPED and lost_folder and "STORAGE_NOT_WRITABLE" in process.said():
            # The folder went away between what was staged there and its publication.
            return False
        raise Failed(f"it ended by itself with {code}: {process.said()[-3000:]}")

    def _start(self, command: str, place: str | None = None) -> Process:
        self._starts += 1
        log = self.folder / "logs" / f"{self._starts:03d}-{command}"
        return Process(command, self.folder, log, self.environment, place)

    def _kill(self, process: Process, life: Life) -> None:
        deadline = time.monotonic() + life.seconds
        while time.monotonic() < deadline and process.ended() is None:
            time.sleep(0.01)
        process.kill(life.alone)

    def _befall(self, life: Life, process: Process) -> None:
        if life.intruder:
            with process.paused():
                self._intrude()
        if life.refuses is not None:
            (self.folder / "refuses" / life.refuses).touch()
            self._break(life.refuses)
        if life.loses is not None:
            with process.paused():
                path = self.folder / "out" / life.loses
                self._away[life.loses] = self.folder / "away" / life.loses
                path.rename(self._away[life.loses])
                path.touch()
            self._break(life.loses)

    def _break(self, query: str) -> None:
        self._broken.add(query)
        self._waited.discard(query)

    def _mend(self, process: Process) -> None:
        if self._away:
            with process.paused():
                self._mend_folders()
        for flag in (self.folder / "refuses").iterdir():
            flag.unlink()
        self._broken.clear()

    def _mend_folders(self) -> None:
        for name, away in self._away.items():
            path = self.folder / "out" / name
            path.unlink()
            away.rename(path)
            self._broken.discard(name)
        self._away.clear()

    def _intrude(self) -> None:
        """A second process on the same checkpoint is refused, and changes nothing."""
        before = self._digest_at_rest("checkpoint", "out", "in", "away")
        self._expect_refusal("CHECKPOINT_IN_USE")
        _must_be_the_same(before, self._digest("checkpoint", "out", "in", "away"))
        self.tallies.refused += 1

    def _decide(self) -> None:
        """Queries that have failed are mended, and go on from there; once it is asked first."""
        failed = self.failed_queries()
        decisions = self.folder / "decisions.json"
        if failed and not self._asked:
            self._asked = True
            decisions.write_text(json.dumps({"mended": self._mended}))
            before = self._digest_at_rest("checkpoint/epochs", "checkpoint/state", "out", "in")
            self._expect_refusal("QUERY_FAILED_BEFORE")
            _must_be_the_same(
                before, self._digest("checkpoint/epochs", "checkpoint/state", "out", "in")
            )
        self._mended += [name for name in failed if name not in self._mended]
        self.tallies.failed_queries = len(self._mended)
        decisions.write_text(json.dumps({"mended": self._mended, "retried": failed}))

    def _expect_refusal(self, condition: str) -> None:
        process = self._start("run")
        try:
            code = process.wait()
        except subprocess.TimeoutExpired:
            code = None
        finally:
            process.kill()
        if code != REFUSED or f"refused {condition}" not in process.said():
            raise Failed(f"no {condition}, but {code}: {process.said()[-3000:]}")

    def _digest_at_rest(self, *names: str) -> dict[str, str]:
        """The same once nothing changes: tasks of a process that has died go on to their end."""
        before, seen_at = self._digest(*names), time.monotonic()
        while time.monotonic() - seen_at < _REST:
            time.sleep(0.2)
            later = self._digest(*names)
            if later != before:
                before, seen_at = later, time.monotonic()
        return before

    def _digest(self, *names: str) -> dict[str, str]:
        """All files with what is in them."""
        digests = {}
        for path in (path for name in names for path in (self.folder / name).rglob("*")):
            # Which commit is the newest is noted again by whoever finds the note behind it, as a
            # process leaves it that is killed right after its commit.
            if path.name == "latest":
                continue
            with suppress(FileNotFoundError, IsADirectoryError):
                digests[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests

    # The end

    def finish(self) -> None:
        """Mend everything, bring the last rows, and run to the end."""
        for flag in (self.folder / "refuses").iterdir():
            flag.unlink()
        while min(self.files.values()) < max(*self.files.values(), self.data.zero_sum_in + 12):
            stream = min(self.files, key=lambda s: self.files[s])
            self._add_file(stream, self.data.rows(stream, self.files[stream]))
        for stream, number in list(self.files.items()):
            self._add_file(stream, self.data.last_rows(stream, number))
        for _ in range(3):
            self._decide()
            process = self._start("finish")
            code = process.wait()
            process.kill()
            if code == 0:
                break
            # A query that had not come to its zero before does so now.
            if code != STOPPED or not self.failed_queries():
                raise Failed(f"it ended with {code}: {process.said()[-3000:]}")
        else:
            raise Failed("queries fail again and again")
        if self._left is not None:
            self._left.kill()


def run(
    folder: Path,
    seed: int,
    lives: Sequence[Life] | None = None,
    kills: int = 50,
    environment: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = print,
    zeros: tuple[int, int] | None = None,
) -> Tallies:
    """Chaos from beginning to end; raises if anything is not as it must be."""
    random = Random(seed)
    if lives is None:
        lives = random_lives(random, kills)
    if zeros is None:
        half, whole, twice = len(lives) // 2, len(lives), 2 * len(lives)
        zeros = random.randint(half, whole), random.randint(whole, twice)
    chaos = Chaos(folder, Data(seed, *zeros), random, environment or dict(os.environ), tell)
    for life in lives:
        chaos.live(life)
    chaos.finish()
    tallies = chaos.tallies
    judge(tallies, folder, chaos.data, chaos.files, chaos.planted, chaos.commit())
    tell(f"chaos: seed {seed}, {tallies}")
    if tallies.problems:
        raise Failed("\n".join(tallies.problems))
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None, help="a new folder, which is kept")
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(10_000) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    print(f"chaos: seed {seed}, {arguments.kills} kills, in {folder}", flush=True)
    try:
        run(folder, seed, kills=arguments.kills, tell=lambda line: print(line, flush=True))
    except Failed as failure:
        sys.exit(f"chaos: seed {seed} has failed; see {folder}\n{failure}")
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
