"""Each layer of the code knows only those before it, and most of them never meet Spark."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.optimizer.early import shape

SOURCES = Path(shape.__file__).parents[2]

#: The packages and modules of ``headrace`` in the order in which they may know each other.
LAYERS = (
    ("redaction", "failpoints"),
    ("errors",),
    ("names", "environment"),
    ("plan",),
    ("sql",),
    ("stats",),
    ("cost",),
    ("optimizer",),
    ("merge",),
    ("definitions",),
    ("planner",),
    ("settings", "functions", "explain", "yaml_nodes"),
    ("state", "builder", "pipeline"),
    ("statements", "reading_order"),
    ("operators",),
    ("compiler",),
    ("spark_sessions",),
    ("engine", "native"),
    ("registration", "query"),
    ("session", "client"),
    ("__init__",),
    ("assembly",),
    ("service",),
    ("contestants",),
    ("calibration",),
    ("cli",),
    ("__main__",),
)
#: Who may import PySpark.
WITH_SPARK = {"spark_sessions", "engine", "native", "query", "session", "assembly", "cli"}
#: What the engine may know of the layer that reads SQL: how expressions are written, and in which
#: form it answers what Spark knows of a function. Never how a text is read.
KNOWN_OF_SQL = {
    "headrace.sql.calls",
    "headrace.sql.dialect",
    "headrace.sql.render",
    "headrace.sql.type_names",
}
PLACE = {name: place for place, names in enumerate(LAYERS) for name in names}


def _layer(module: str) -> str:
    """The layer of a module by its dotted name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _modules() -> Iterator[tuple[str, Path]]:
    for file in sorted(SOURCES.rglob("*.py")):
        parts = file.relative_to(SOURCES.parent).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), file


def _imports(file: Path) -> Iterator[str]:
    """All that a file imports, inside of functions too, but not for its types alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


MODULES = dict(_modules())


def test_every_module_is_in_a_layer() -> None:
    assert {_layer(module) for module in MODULES} == PLACE.keys()


@pytest.mark.parametrize("layer", PLACE)
def test_a_layer_knows_only_those_before_it(layer: str) -> None:
    own = {m: file for m, file in MODULES.items() if _layer(m) == layer}
    assert own
    upwards = [
        f"{module} imports {name}"
        for module, file in own.items()
        for name in _imports(file)
        if name.split(".")[0] == "headrace"
        and _layer(name) != layer
        and PLACE[_layer(name)] >= PLACE[layer]
    ]
    assert not upwards


def test_spark_is_met_by_the_outer_layers_alone() -> None:
    meet = {
        _layer(module)
        for module, file in MODULES.items()
        if any(name.split(".")[0] in ("pyspark", "py4j") for name in _imports(file))
    }
    assert meet == WITH_SPARK


def test_the_engine_reads_no_sql_of_users() -> None:
    inner = ("definitions", "operators", "compiler", "engine")
    read = {
        name
        for module, file in MODULES.items()
        if _layer(module) in inner
        for name in _imports(file)
        if name.startswith("headrace.sql")
    }
    assert read <= KNOWN_OF_SQL


def test_every_room_names_what_is_in_it() -> None:
    """The ``__init__`` of a package tells a newcomer of each of its files and packages."""
    unnamed = []
    for module, file in MODULES.items():
        room = MODULES.get(module.rpartition(".")[0])
        if room is None or room.parent == SOURCES:
            continue
        text = ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))) or ""
        if not re.search(
            rf"``{file.stem if file.stem != '__init__' else file.parent.name}``", text
        ):
            unnamed.append(module)
    assert not unnamed
