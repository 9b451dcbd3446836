"""One result under many names: every file and table holds what its own query asked for."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from sqlglot import exp

from headrace.definitions.definition import Definition, call, column, select
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.epochs.shared_output import SharedOutput
from headrace.engine.execution.executor import Executor
from headrace.operators.write import Write, Written
from headrace.plan.nodes import Source
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, WINDOW, Field, Schema
from headrace.state.arrangement import StateFile
from tests.support.duck import arrow_table
from tests.support.engine import task_executor
from tests.support.seeds import Seeds
from tests.support.streams import Row

KINDS = {"k": STRING, "v": BIGINT, "w": BIGINT, "ts": TIMESTAMP}
COLUMNS = Schema.of(tuple(KINDS.items()))


class Counting:
    """A writer that counts what it is asked for."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.asked: list[Write] = []

    def write_all(self, writes: Sequence[Write]) -> list[Written | Exception]:
        self.asked += writes
        blocked = [w.path is not None and Path(w.path).parent.is_file() for w in writes]
        # What Spark would say of a file in the way.
        whole = [write for write, broken in zip(writes, blocked, strict=True) if not broken]
        answers = iter(self._executor.write_all(whole))
        return [OSError("a file in the way") if broken else next(answers) for broken in blocked]


def rows(chance: random.Random, count: int) -> list[Row]:
    begin = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
    return [
        {
            "k": chance.choice(["a", "b", None]),
            "v": chance.choice([None, 0, 1, -7, 1 << 40]),
            "w": chance.randrange(3),
            "ts": begin + datetime.timedelta(seconds=chance.randrange(100)),
        }
        for _ in range(count)
    ]


def stored(executor: Executor, folder: Path, given: list[Row]) -> Definition:
    """The rows as a definition that computes something."""
    path = folder / "given.parquet"
    parquet.write_table(arrow_table(given, COLUMNS), path)
    files = [StateFile(str(path), 1, len(given), path.stat().st_size, None, None)]
    query = select(
        executor.inputs.bind_files(files, COLUMNS),
        {
            **{name: column(name) for name in KINDS},
            "doubled": column("w") + column("w"),
            "slot": call(
                "named_struct",
                exp.Literal.string("start"),
                column("ts"),
                exp.Literal.string("end"),
                column("ts"),
            ),
        },
    )
    fields = (*COLUMNS, Field("doubled", BIGINT), Field("slot", WINDOW))
    return Definition(query, Schema(fields))


def asked(
    chance: random.Random, computed: Definition, number: int, path: str | None, folder: bool
) -> Write:
    """A query's own choice of columns, in its order and by its names; some are asked for twice."""
    everything = list(computed.schema.names)
    if chance.random() < 0.2:
        return Write(f"q{number}", computed.query, computed.schema, path, folder)
    chosen = everything if chance.random() < 0.6 else everything[:3]
    chosen = chance.sample(chosen, len(chosen)) + chance.choices(chosen, k=chance.randrange(2))
    style = chance.choice(["c{1}", "q{0}_{1}"])
    fields = tuple(
        Field(style.format(number, place), computed.schema[name].type)
        for place, name in enumerate(chosen)
    )
    return Write(f"q{number}", computed.query, Schema(fields), path, folder, columns=tuple(chosen))


def expected(given: list[Row], write: Write) -> list[tuple[object, ...]]:
    full = [
        {**row, "doubled": 2 * row["w"], "slot": {"start": row["ts"], "end": row["ts"]}}
        for row in given
    ]
    names = write.schema.names if write.columns is None else write.columns
    return sorted((tuple(row[name] for name in names) for row in full), key=repr)


def read(written: Written) -> list[pa.Table]:
    """The files, and those in folders."""
    paths = [Path(file.path) for file in written.files]
    files = [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]
    return [parquet.ParquetFile(file).read() for file in files]


def got(table: pa.Table, write: Write) -> list[tuple[object, ...]]:
    assert table.column_names == list(write.schema.names)
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)


@pytest.mark.parametrize("kind", ["table", "file", "folder"])
@pytest.mark.parametrize("by_driver", [True, False])
def test_each_gets_its_own_columns(
    kind: str, by_driver: bool, seeds: Seeds, tmp_path: Path
) -> None:
    compared = 0
    for seed in seeds.some(640, 4):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        executor = task_executor(**({} if by_driver else {"driverRows": "0"}))
        writer = Counting(executor)
        given = rows(chance, 23)
        computed = stored(executor, folder, given)
        paths = [None if kind == "table" else str(folder / f"out-{i}") for i in range(25)]
        writes = [asked(chance, computed, i, p, kind == "folder") for i, p in enumerate(paths)]
        shared = SharedOutput(writer, lambda _: LocalFiles(), executor.inputs, executor)
        for write, answer in zip(writes, shared.write_all(writes), strict=True):
            assert isinstance(answer, Written), answer
            assert answer.rows == len(given)
            if answer.table is None:
                tables = read(answer)
                assert all(f.path.startswith(str(write.path)) for f in answer.files)
            else:
                tables = [answer.table]
            assert got(pa.concat_tables(tables), write) == expected(given, write)
            compared += len(given)
        # All columns, or three of them: whatever they are called, each was computed once.
        computing = [write for write in writer.asked if write.query is computed.query]
        assert len(computing) == len({frozenset(w.columns or w.schema.names) for w in writes})
        assert by_driver is False or kind == "table" or len(writer.asked) == len(computing)
    assert compared > 1_000


@pytest.mark.parametrize("by_driver", [True, False])
def test_a_broken_place_is_one_query_s_trouble(by_driver: bool, tmp_path: Path) -> None:
    """Of the first of all, of the first who calls a column otherwise, and of one like others."""
    executor = task_executor(**({} if by_driver else {"driverRows": "0"}))
    given = rows(random.Random(1), 9)
    computed = stored(executor, tmp_path, given)
    other = Schema.of((("x", BIGINT), ("y", STRING)))
    own = Schema.of((("k", STRING), ("v", BIGINT)))
    for broken in ({0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2, 3}, {4}):
        folder = tmp_path / "-".join(map(str, sorted(broken)))
        writes = []
        for number, schema in enumerate((own, other, other, other, own)):
            place = folder / f"q{number}"
            place.mkdir(parents=True)
            if number in broken:
                place.rmdir()
                place.write_text("a file in the way")
            columns = ("v", "k") if schema is other else ("k", "v")
            path = str(place / "epoch")
            writes.append(Write(f"q{number}", computed.query, schema, path, True, columns=columns))
        shared = SharedOutput(Counting(executor), lambda _: LocalFiles(), executor.inputs, executor)
        answers = shared.write_all(writes)
        assert {i for i, a in enumerate(answers) if not isinstance(a, Written)} == broken
        for write, answer in zip(writes, answers, strict=True):
            if isinstance(answer, Written):
                assert got(pa.concat_tables(read(answer)), write) == expected(given, write)


def test_sources_are_not_needed_for_names() -> None:
    """A projection over a stream is a name for it as well as one over a join."""
    from headrace.plan.expressions import Column, Named
    from headrace.plan.nodes import Project
    from headrace.plan.relabelling import relabelling

    source = Source("s", COLUMNS, "ts")
    lower = Project(source, (Named("a", Column("v", BIGINT)), Named("b", Column("k", STRING))))
    upper = Project(lower, (Named("y", Column("b", STRING)), Named("x", Column("a", BIGINT))))
    named = relabelling(upper)
    assert (named.computes, named.columns) == (source, ("k", "v"))
    assert named.over(upper.schema).schema == upper.schema
    computing = Project(upper, (Named("z", Column("x", BIGINT)),))
    assert relabelling(computing).columns == ("v",)
    assert relabelling(source).columns is None
