"""Results compared without bringing them into memory: by number and checksum."""

from __future__ import annotations

from pathlib import Path


def fingerprint(folder: Path) -> tuple[int, int]:
    """Number of rows, and the sum of their hashes: the same for equal multisets."""
    import duckdb

    files = sorted(str(file) for file in folder.rglob("*.parquet"))
    if not files:
        return 0, 0
    with duckdb.connect() as connection:
        columns = [row[0] for row in connection.execute(f"DESCRIBE {_reading(files)}").fetchall()]
        hashed = ", ".join(f'"{name}"' for name in sorted(columns) if name != "epoch")
        sums = f"SELECT count(*), coalesce(sum(hash({hashed})::HUGEINT), 0)"
        found = connection.execute(f"{sums} {_reading(files)}").fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def _reading(files: list[str]) -> str:
    return f"FROM read_parquet([{', '.join(repr(file) for file in files)}])"
