"""Tests of graphs in Python: fixtures here, and a pytest plugin that collects `*.test.yaml`."""

from omnigraph.testing.fixture import FixtureGraph, graph_fixture

__all__ = ["FixtureGraph", "graph_fixture"]
