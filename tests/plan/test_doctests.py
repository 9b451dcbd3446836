"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import headrace.cost
import headrace.optimizer
import headrace.optimizer.probing
import headrace.plan
import headrace.sql
import headrace.stats

# All that needs no Spark.
PACKAGES = (
    headrace.plan,
    headrace.sql,
    headrace.optimizer,
    headrace.optimizer.probing,
    headrace.stats,
    headrace.cost,
)
SINGLE = ("errors", "settings", "builder", "functions", "explain", "pipeline", "yaml_nodes")
MODULES = [
    *(f"headrace.{name}" for name in SINGLE),
    *(
        f"{package.__name__}.{module.name}"
        for package in PACKAGES
        for module in pkgutil.iter_modules(package.__path__)
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_some() -> None:
    tried = sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES)
    assert tried > 15
