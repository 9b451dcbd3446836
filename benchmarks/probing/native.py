"""Against a cascade of plain Spark's joins: how long, and how many rows are kept."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import BenchError
from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from benchmarks.harness.fingerprints import fingerprint
from benchmarks.probing.runs import COMPARED, OURS, Found, ProbeBench
from headrace.contestants import StreamFolder, empty_folder, open_session
from headrace.native.compare import Case


def native(bench: ProbeBench) -> Found:
    cases = [_native(bench, *shape) for shape in _shapes(bench.size.native_rows // 4)]
    return cases, {f"{c.case}: {name}": v for c in cases for name, v in c.ratio.items()}


def _native(bench: ProbeBench, shape: str, keys: Mapping[str, int], orders: Sequence[str]) -> Case:
    rows = bench.size.native_rows // 4
    batches = bench.size.batches
    streams = []
    for salt, (name, count) in enumerate(keys.items()):
        folder = bench.setup.work / "native" / f"{shape}-{name}"
        if not folder.exists():
            events = EventFiles(
                rows, batches, keys=count, step=3_600_000 / rows, salt=1_000_003 * (salt + 1)
            )
            events.write(folder)
        streams.append(StreamFolder(name, folder, EVENTS_SCHEMA, files_per_batch=1))
    out = bench.setup.work / "out"
    prints: dict[str, tuple[int, int]] = {}
    seconds: dict[str, float] = {}
    state: dict[str, int] = {}
    # Once to warm up.
    for _ in range(2):
        one = bench.joined(streams, _star(orders[0]), COMPARED[OURS], empty_folder(out))
    seconds["headrace"], state["headrace"] = one.seconds, one.state_rows
    prints["headrace"] = fingerprint(out)
    for order in orders:
        name = f"native, {' '.join(order)}"
        seconds[name], state[name] = _plain_spark(bench, streams, _star(order), empty_folder(out))
        prints[name] = fingerprint(out)
        bench.setup.say(
            f"native/{shape}: {name} took {seconds[name]:.2f} s and keeps {state[name]:,} rows,"
            f" headrace {one.seconds:.2f} s and {one.state_rows:,}"
        )
    others = [name for name in seconds if name != "headrace"]
    same = len(set(prints.values())) == 1
    return Case(
        f"native/{shape}/{4 * rows:,} rows",
        same,
        4 * rows,
        seconds,
        {f"{n}/headrace": seconds[n] / seconds["headrace"] for n in others}
        | {f"state rows, headrace/{n}": state["headrace"] / state[n] for n in others},
        {
            "target": "native/headrace >= 5 at a million rows; state rows at most a tenth of "
            "those of the order that a user may write",
            "results": prints["headrace"][0],
            "state rows": state,
            "keys": dict(keys),
            **({} if same else {"difference": str(prints)}),
        },
    )


def _plain_spark(
    bench: ProbeBench, streams: list[StreamFolder], sql: str, out: Path
) -> tuple[float, int]:
    """Seconds, and the rows that all joins together keep at the end."""
    from headrace import native
    from headrace.plan.nodes import OutputMode

    spark = bench.setup.spark
    plan = open_session(spark, streams, None).sql(sql).plan
    session = native.native_session(spark)
    sources = {stream.name: stream.read(spark) for stream in streams}
    frame = native.stream_plan(plan, sources, None, OutputMode.APPEND, session)
    place = empty_folder(bench.setup.work / "native-state")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place))
    started = time.perf_counter()
    query = writer.trigger(availableNow=True).start(str(out))
    query.awaitTermination()
    seconds = time.perf_counter() - started
    last = query.lastProgress
    if query.exception() is not None or last is None:
        raise BenchError(f"the plain Spark query failed: {query.exception()}")
    shutil.rmtree(place)
    return seconds, sum(int(one["numRowsTotal"]) for one in last["stateOperators"])


def _shapes(rows: int) -> list[tuple[str, dict[str, int], tuple[str, ...]]]:
    """Four streams of so many rows: by how many keys, and the orders plain Spark runs them in.

    *even* has as many results as rows in all. In *filtered* three streams have 5.6 rows for each
    key, so that joined they are many, and the last one has few of their keys: results are again as
    many as rows. There a user may write the worst order or the best.
    """
    even = round((rows**3 / 4) ** (1 / 3))
    filtered = round(rows / 5.6)
    return [
        ("even", dict.fromkeys("abcd", even), ("abcd",)),
        ("filtered", {**dict.fromkeys("abc", filtered), "d": 44 * filtered}, ("abcd", "dabc")),
    ]


def _star(order: Sequence[str]) -> str:
    first, *others = order
    joins = "".join(f" JOIN {name} ON {first}.k = {name}.k" for name in others)
    values = ", ".join(f"{name}.v AS {name}v" for name in sorted(order))
    return f"SELECT a.k, {values} FROM {first}{joins}"
