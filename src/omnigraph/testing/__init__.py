"""Tests of graphs in Python: fixtures here, and a pytest plugin that collects `*.test.yaml`.

Names are loaded when they are first used: every pytest run imports the plugin below this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.testing.fixture import FixtureGraph, graph_fixture

__all__ = ["FixtureGraph", "graph_fixture"]


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'omnigraph.testing' has no attribute {name!r}")
    value: object = getattr(import_module("omnigraph.testing.fixture"), name)
    return value
