"""Definitions on disk: what was written is what is read, and nothing else is believed. No Spark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.changes import forget
from headrace.engine.checkpoint.files import LocalFiles
from headrace.errors import CheckpointError
from headrace.service.definitions import Definition, DefinitionFiles
from headrace.state.arrangement import StateFile
from headrace.state.branches import Failure, QueryBranch
from headrace.state.committed import Committed, QueryRecord
from headrace.state.store_names import results_of_query
from headrace.statements import Create, parse_script

SCRIPT = """
CREATE STREAM bids (a INT, ts TIMESTAMP) FROM json '/in'
  WITH (time = ts, delay = '1 second', ttl = '1 hour', idle = '1 minute', x.y = 1);
CREATE TABLE t FROM parquet '/t' WITH (mergeSchema = true);
CREATE VIEW v AS SELECT 'it''s "quoted"' AS q, a, ts FROM bids;
CREATE QUERY größe WITH (format = parquet, path = '/out', outputMode = update, tags = 'a,b') AS
  SELECT * FROM v
"""


def definitions() -> list[Definition]:
    made = []
    for statement in parse_script(SCRIPT):
        assert isinstance(statement, Create)
        made.append(Definition(0, statement.spec, "acme", "ann", statement.tags, "2026-11-20"))
    return made


def opened(folder: Path) -> tuple[DefinitionFiles, list[Definition]]:
    files = DefinitionFiles(LocalFiles(), str(folder))
    return files, files.load()


def test_what_is_written_is_read_again_in_order(tmp_path: Path) -> None:
    files, before = opened(tmp_path)
    assert before == []
    kept = [files.add(definition) for definition in definitions()]
    assert [d.number for d in kept] == [1, 2, 3, 4]
    marked = files.mark_dropped(kept[3], 7)
    files.delete(kept[1])
    files.close()
    again, after = opened(tmp_path)
    assert after == [kept[0], kept[2], marked]
    assert after[2].dropped_at == 7
    # A number is not given twice while anything could still speak of it.
    assert again.add(kept[1]).number == 5
    again.close()


def test_the_name_of_their_folder_outlasts_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append(os.fstat(number).st_ino))
    opened(tmp_path)[0].close()
    assert tmp_path.stat().st_ino in flushed


def test_one_service_at_a_time_writes_them(tmp_path: Path) -> None:
    files, _ = opened(tmp_path)
    with pytest.raises(CheckpointError, match="in use"):
        opened(tmp_path)
    files.close()
    with pytest.raises(CheckpointError):
        files.add(definitions()[0])
    opened(tmp_path)[0].close()


@pytest.mark.parametrize("harm", ["cut off", "changed", "renamed", "empty"])
def test_what_is_damaged_is_not_believed(tmp_path: Path, harm: str) -> None:
    files, _ = opened(tmp_path)
    files.add(definitions()[0])
    files.close()
    path = tmp_path / "definitions" / "0000000001.json"
    text = path.read_text()
    match harm:
        case "cut off":
            path.write_text(text[:-20])
        case "changed":
            path.write_text(text.replace("/in", "/etc"))
        case "renamed":
            path.rename(path.with_name("0000000002.json"))
        case "empty":
            path.write_text("")
    with pytest.raises(CheckpointError, match="damaged"):
        opened(tmp_path)


def test_a_file_that_never_had_its_name_is_no_definition(tmp_path: Path) -> None:
    files, _ = opened(tmp_path)
    files.close()
    (tmp_path / "definitions" / ".0000000001.json.abc.tmp").write_text("{")
    files, found = opened(tmp_path)
    assert found == []
    files.close()


def state_of(since: int, as_branch: bool) -> Committed:
    """A state that holds the query q since an epoch, and its results."""
    state = Committed(epoch=9)
    record = QueryRecord("plan", since, None, ())
    table = results_of_query("q")
    holder = Committed(epoch=9) if as_branch else state
    holder.queries["q"] = record
    holder.arrangement(table).append([StateFile("r", since, 1, 1, None, None)])
    if as_branch:
        state.branches["q"] = QueryBranch(holder, Failure(9, "QUERY_PAUSED", "paused"))
    return state


@pytest.mark.parametrize("as_branch", [False, True])
@pytest.mark.parametrize(
    ("before", "since", "goes"), [(None, 9, True), (5, 5, True), (5, 3, True), (5, 6, False)]
)
def test_only_what_was_dropped_is_forgotten(
    as_branch: bool, before: int | None, since: int, goes: bool
) -> None:
    state = state_of(since, as_branch)
    forget(state, "Q" if as_branch else "q", before)
    holders = [state, *(branch.state for branch in state.branches.values())]
    assert any("q" in holder.queries for holder in holders) == (not goes)
    assert ("r" in {path for _, path in state.garbage}) == goes
    assert ("r" in set(state.files())) == (not goes)


def test_a_definition_knows_its_name_whatever_its_case() -> None:
    view, query = definitions()[2:]
    assert query.key != replace(query, tenant="other").key
    assert view.key[0] != query.key[0]
