"""The ``spark.headrace.*`` settings: one table that code, errors and documentation share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from math import inf

from headrace.cost.jobs import ROWS_PER_JOB
from headrace.errors import DurationError, SettingError
from headrace.merge.solver import SOLVER_STEPS
from headrace.names import folded
from headrace.optimizer import JOIN_RULES, RULES
from headrace.optimizer.probing.strategies import STRATEGIES
from headrace.plan.durations import parse_duration
from headrace.planner.names import DECISION_NAMES
from headrace.planner.policy import LEAST_GAIN, ProbeCycle

PREFIX = "spark.headrace."


@dataclass(frozen=True)
class Setting:
    """One key: its default, how its text is read, and what it is for."""

    key: str
    default: str
    read: Callable[[str], object]
    purpose: str

    @property
    def full_key(self) -> str:
        return PREFIX + self.key


@dataclass(frozen=True)
class FailedQueries:
    """What is to become of queries that failed: of some by name, and of all others."""

    by_name: Mapping[str, str] = field(default_factory=dict)
    others: str | None = None

    def of(self, query: str) -> str | None:
        return self.by_name.get(folded(query), self.others)


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError("true or false")


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("a whole number, zero or more")
    return int(text)


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*(\.\d+)?\s*[KMGT]B", text.strip(), re.IGNORECASE):
        raise ValueError("an amount of memory such as '1GB'")
    return text.strip()


def _duration(text: str) -> int:
    try:
        milliseconds = parse_duration(text)
    except DurationError:
        raise ValueError("a duration such as '500 milliseconds'") from None
    if milliseconds < 0:
        raise ValueError("a duration that is not negative")
    return milliseconds


def _positive_duration(text: str) -> int:
    milliseconds = _duration(text)
    if not milliseconds:
        raise ValueError("a duration longer than nothing")
    return milliseconds


def _rules(text: str) -> frozenset[str]:
    rules = (name for name, rule in RULES.items() if not rule.always)
    switchable = (*rules, *JOIN_RULES, *DECISION_NAMES)
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    for name in sorted(names - set(switchable)):
        near = get_close_matches(name, switchable, 1)
        meant = f", where {name!r} may be {near[0]!r}" if near else ""
        raise ValueError(f"names of rules and decisions{meant}; docs/settings.md lists them")
    return names


def _at_least_one(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("a whole number, one or more")
    return int(text)


def _cycle(text: str) -> ProbeCycle:
    if text.strip().isdecimal():
        return ProbeCycle(epochs=_at_least_one(text))
    return ProbeCycle(milliseconds=_duration(text))


def _probe_costs(text: str) -> tuple[float, float] | None:
    """Seconds of a query and of a match; None for those that are known of the machine."""
    if text.strip().lower() == "auto":
        return None
    try:
        query, match = (float(part) for part in text.split(","))
    except ValueError:
        query = match = -1.0
    if not (0 <= query < inf and 0 <= match < inf and query + match > 0):
        raise ValueError("auto, or two numbers of nanoseconds such as '45, 15'")
    return query * 1e-9, match * 1e-9


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() in choices:
            return text.lower()
        raise ValueError(" or ".join(choices))

    return read


def _choices(text: str) -> FailedQueries:
    words = ("retry", "skip", "drop", "wait")
    by_name: dict[str, str] = {}
    others: str | None = None
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, sign, word = (part.strip() for part in entry.rpartition("="))
        if word.lower() not in words or (sign and not name) or (not sign and others is not None):
            raise ValueError(f"one of {', '.join(words)}, or a list such as 'a=retry,b=skip'")
        if sign:
            by_name[folded(name)] = word.lower()
        else:
            others = word.lower()
    return FailedQueries(by_name, others)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("a number from 0 to 1")
    return share


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "epoch.gatherTimeout",
        "1 second",
        _duration,
        "How long an epoch waits for the batch of a stream that is behind the others in event "
        "time. A stream that fails to come is not waited for again until it has delivered.",
    ),
    Setting(
        "epoch.alignment",
        "1 minute",
        _duration,
        "How far, in event time, a stream may run ahead of the one that is furthest behind before "
        "its batches wait; at least the time that its last batch covered.",
    ),
    Setting(
        "epoch.absenceTimeout",
        "5 seconds",
        _duration,
        "After this long without a batch a stream is absent: no epoch waits for it. Watermarks go "
        "on waiting for it; that they do not is said by the stream's `idle`.",
    ),
    Setting(
        "state.maxRows",
        "0",
        _count,
        "How many rows of state may wait for the watermarks of several streams. Above it no stream "
        "gets further ahead of the slowest of its operators than `epoch.alignment` says, however "
        "long that one is silent: its batches are paused. 0 sets no bound, since how much a disk "
        "holds is not known here.",
    ),
    Setting(
        "watermark.warnAfter",
        "5 minutes",
        _duration,
        "A query whose watermark has stood still for so long while rows came in says so, with the "
        "stream that holds it back.",
    ),
    Setting(
        "executor",
        "auto",
        _one_of("auto", "spark", "buckets"),
        "Who runs the engine's steps: Spark's own operators, DuckDB inside Spark tasks wherever "
        "that can run them, or DuckDB where it is also expected to be faster.",
    ),
    Setting(
        "tasks.buckets",
        "0",
        _count,
        "Into how many parts a step in DuckDB is cut at most, and state told apart by keys; 0 "
        "takes the cluster's default parallelism.",
    ),
    Setting(
        "tasks.rows",
        "50000",
        _count,
        "How many rows of a step are worth a task of its own in DuckDB.",
    ),
    Setting(
        "tasks.leastRows",
        "100000",
        _count,
        "Steps in DuckDB that have fewer rows together, in files on local disks, run in the "
        "driver's process: a Spark job takes longer to begin than they take. 0 turns that off.",
    ),
    Setting(
        "tasks.wholeRows",
        "3000000",
        _count,
        "A step of more rows than this, which cannot be cut into parts for several tasks, is left "
        "to Spark.",
    ),
    Setting(
        "tasks.memory",
        "1GB",
        _memory,
        "The memory that DuckDB may use in a task; what needs more spills to local disk.",
    ),
    Setting(
        "driverRows",
        "50000",
        _count,
        "State and results of up to this many rows are written as one file by the driver where "
        "Spark computes them, which saves the cost of a distributed write, and are handed to "
        "foreachBatch from there. 0 turns that off.",
    ),
    Setting(
        "shufflePartitions",
        "0",
        _count,
        "Partitions of the engine's shuffles; 0 takes the cluster's default parallelism.",
    ),
    Setting(
        "adaptiveRows",
        "1000000",
        _count,
        "Epochs of at least this many rows use Spark's adaptive execution; below, its extra jobs "
        "cost more than they save.",
    ),
    Setting(
        "interpretedRows",
        "30000",
        _count,
        "Steps that read up to this many rows are interpreted by Spark instead of compiled: the "
        "watermark in them changes with each epoch, so they would be compiled again each time.",
    ),
    Setting(
        "compaction.files",
        "16",
        _count,
        "An arrangement's small files are merged when it has this many of them.",
    ),
    Setting(
        "retainedCommits",
        "20",
        _count,
        "How many commits of past epochs stay in the checkpoint, for people who look into it.",
    ),
    Setting(
        "checkpoint.flush",
        "true",
        _boolean,
        "Whether all that a commit names is flushed to disk before it, on local disks, so that a "
        "power cut loses nothing; without it only a crash of the process is harmless.",
    ),
    Setting(
        "checkpoint.leaseTimeout",
        "1 minute",
        _positive_duration,
        "After this long without a sign of life from the process that owns a checkpoint another "
        "may take it over. On the same machine a dead one is noticed at once.",
    ),
    Setting(
        "sink.retryPause",
        "1 second",
        _positive_duration,
        "How long the engine waits before it hands rows over again to a sink that did not take "
        "them; each time twice as long.",
    ),
    Setting(
        "sink.longestPause",
        "1 minute",
        _positive_duration,
        "The longest of these pauses.",
    ),
    Setting(
        "sink.lastTries",
        "5",
        _count,
        "How often, at the end of a run over what is there, a sink is tried before the run ends "
        "without it. The rows stay in the checkpoint and are delivered by the next run.",
    ),
    Setting(
        "sink.outboxRows",
        "10000000",
        _count,
        "How many rows may wait in the checkpoint for one sink; above it the query fails, and goes "
        "on from there when the sink is mended. 0 sets no bound.",
    ),
    Setting(
        "failedQueries",
        "",
        _choices,
        "What becomes of queries that failed, at the next start: `retry` (go on from the failed "
        "epoch), `skip` (go on from now), `drop` (forget it), `wait` (stay as it is while the "
        "others run, with its place and its rows), for all of them or by name as in "
        "`a=retry,b=skip`. Without a word the start is refused and asks.",
    ),
    Setting(
        "failedQueries.keptRows",
        "10000000",
        _count,
        "How many rows of its streams are kept in the checkpoint for a query that failed, so that "
        "it can go on from the failed epoch. 0 keeps none.",
    ),
    Setting(
        "sink.timeout",
        "0 seconds",
        _duration,
        "How long a foreachBatch function may take; after that its Spark jobs are cancelled and "
        "the sink has failed. 0 sets no bound.",
    ),
    Setting(
        "allowQueryChange",
        "false",
        _boolean,
        "Whether a checkpoint may be resumed without a query that it holds, or with another "
        "meaning of it; that query's state is then dropped.",
    ),
    Setting(
        "optimizer.disabledRules",
        "",
        _rules,
        "Names of optimizer rules, of rules for orders of joins and of planner decisions that are "
        "turned off, separated by commas. A decision that is turned off leaves things as they are "
        "written: nothing is merged or shared, nothing changes places.",
    ),
    Setting(
        "joins.reorder",
        "true",
        _boolean,
        "Whether joins run in the cheapest order instead of the one written.",
    ),
    Setting(
        "joins.passes",
        "auto",
        _one_of("auto", "whole", "terms"),
        "How the new results of a join are found: all inputs in one pass, the new rows of each "
        "input against the others, or whichever costs less in that epoch.",
    ),
    Setting(
        "merge.strategy",
        "sm+",
        _one_of("none", "hb", "hb+", "structural", "sm", "sm+", "sm-bu"),
        "How queries are found that mean the same, wholly or in part: not at all (none), by how "
        "they are written (hb, hb+), by comparing operator graphs (structural), or by meaning "
        "(sm; sm+ looks at the writing first, sm-bu from the sources up).",
    ),
    Setting(
        "merge.arithmetic",
        "exact",
        _one_of("exact", "unbounded"),
        "Whether sums of whole numbers are rearranged only where no overflow is possible (exact), "
        "or as if numbers had no bounds: queries are then equal where neither overflows.",
    ),
    Setting(
        "merge.solverSteps",
        str(SOLVER_STEPS),
        _count,
        "Steps, by its own count, that the SMT solver may take to prove two predicates equal; 0 "
        "never asks it. Steps and not time, so that what is merged does not depend on how busy the "
        "machine is.",
    ),
    Setting(
        "merge.sharedRows",
        str(ROWS_PER_JOB),
        _count,
        "The new rows of an operator that several queries read are computed once and written, if "
        "reading what they are made of again for each would read more than so many rows.",
    ),
    Setting(
        "probe.use",
        "auto",
        _one_of("auto", "always", "never"),
        "Which joins look new rows up in indexes of their inputs: those without a condition on "
        "time, all inner joins by equal keys, or none.",
    ),
    Setting(
        "probe.strategy",
        "dp_pick",
        _one_of(*STRATEGIES),
        "How the orders are chosen in which new rows of an input probe the others: the cheapest "
        "sequence (dp_pick), as written (fixed_order), by selectivity (selectivity_first), the "
        "cheapest next probe (cost_greedy), or the cheapest sequence by half of the cost "
        "(query_cost_only, match_cost_only).",
    ),
    Setting(
        "probe.costModel",
        "engine",
        _one_of("engine", "paper"),
        "By what probe orders are compared: what this engine does, which goes on with each row "
        "that was found, or the published model, which counts what follows a match once.",
    ),
    Setting(
        "probe.costs",
        "auto",
        _probe_costs,
        "What looking a key up, and a row that is found, cost in probes, in nanoseconds, such as "
        "'45, 15': only their ratio matters. auto takes what `headrace calibrate` measured on this "
        "machine, or the usual figures.",
    ),
    Setting(
        "probe.cycle",
        "1",
        _cycle,
        "How long statistics of probes are collected before orders are planned anew: a number of "
        "epochs, or a duration.",
    ),
    Setting(
        "probe.history",
        "60",
        _at_least_one,
        "From how many past cycles the statistics of the next one are forecast.",
    ),
    Setting(
        "probe.smoothing",
        "true",
        _boolean,
        "Whether the statistics of the next cycle are forecast by exponential smoothing, or taken "
        "to be those of the last one.",
    ),
    Setting(
        "windows.sharing",
        "factors",
        _one_of("none", "windows", "factors"),
        "How much the windows over one grouping share: nothing, each other's results, or the "
        "results of auxiliary windows too.",
    ),
    Setting(
        "windows.closing",
        "auto",
        _one_of("auto", "flat", "tree"),
        "How windows that close are computed from panes: straight, through other windows, or "
        "whichever costs less in that epoch.",
    ),
    Setting(
        "windows.costModel",
        "engine",
        _one_of("engine", "paper"),
        "By what layouts of panes are compared: seconds of this engine, or the published count "
        "of items that aggregates take in.",
    ),
    Setting(
        "early.costModel",
        "engine",
        _one_of("engine", "hash", "nested"),
        "By what is chosen which inputs of a join are aggregated before it: what this engine does, "
        "or the published model, for hash joins or for nested loops.",
    ),
    Setting(
        "replan.leastGain",
        str(LEAST_GAIN),
        _share,
        "The share of its cost that a new plan must be expected to save before it replaces one "
        "that runs; for an order of joins or probes, of which nothing has to be moved, half of it.",
    ),
    Setting(
        "progress.retained",
        "100",
        _count,
        "How many progress reports each query keeps.",
    ),
)


@dataclass(frozen=True)
class Settings:
    """The settings in force, read once when an engine is made."""

    gather_timeout: int
    alignment: int
    absence_timeout: int
    state_max_rows: int
    warn_after: int
    executor: str
    task_buckets: int
    task_rows: int
    task_least_rows: int
    whole_rows: int
    task_memory: str
    driver_rows: int
    shuffle_partitions: int
    adaptive_rows: int
    interpreted_rows: int
    compaction_files: int
    retained_commits: int
    checkpoint_flush: bool
    lease_timeout: int
    sink_retry_pause: int
    sink_longest_pause: int
    sink_last_tries: int
    outbox_rows: int
    failed_queries: FailedQueries
    failed_kept_rows: int
    sink_timeout: int
    allow_query_change: bool
    disabled_rules: frozenset[str]
    reorder_joins: bool
    join_passes: str
    merge_strategy: str
    merge_arithmetic: str
    merge_solver_steps: int
    shared_rows: int
    probe_use: str
    probe_strategy: str
    probe_cost_model: str
    probe_costs: tuple[float, float] | None
    probe_cycle: ProbeCycle
    probe_history: int
    probe_smoothing: bool
    window_sharing: str
    window_closing: str
    window_cost_model: str
    early_cost_model: str
    least_gain: float
    retained_progress: int


#: Keys by which settings were once called, and still may be.
RENAMED = {
    "stream.idleTimeout": "epoch.absenceTimeout",
    "probe.leastGain": "replan.leastGain",
}


def read_settings(conf: Mapping[str, str]) -> Settings:
    """Read the settings from Spark's configuration; an unknown or senseless one is refused."""
    given = {k.removeprefix(PREFIX): v for k, v in conf.items() if k.startswith(PREFIX)}
    for old, new in RENAMED.items():
        if old in given:
            former = given.pop(old)
            given.setdefault(new, former)
    keys = {setting.key for setting in SETTINGS}
    for key in given:
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            raise SettingError(
                f"no setting {PREFIX}{key}",
                hint=f"did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists them",
            )
    values = []
    for setting in SETTINGS:
        text = given.get(setting.key, setting.default)
        try:
            values.append(setting.read(text))
        except ValueError as wrong:
            raise SettingError(
                f"{setting.full_key} is {text!r}", hint=f"expected {wrong}"
            ) from None
    names = [each.name for each in fields(Settings)]
    return Settings(**dict(zip(names, values, strict=True)))  # type: ignore[arg-type]


def settings_table() -> str:
    """The settings as a Markdown table, the one in the documentation."""
    rows = [f"| `{s.full_key}` | `{s.default or ' '}` | {s.purpose} |" for s in SETTINGS]
    return "\n".join(["| setting | default | what for |", "|---|---|---|", *rows])
