"""Tests import their common ground as ``tests.support``."""
