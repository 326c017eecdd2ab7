"""Builds the graphs of fixtures in a temporary folder, each once."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, SourceText
from omnigraph.pipelines.data_tests.model import EMPTY, Fixture, Row, SampledFixture, TestFile
from omnigraph.pipelines.data_tests.sample import Sample, draw_sample
from omnigraph.pipelines.data_tests.values import json_bytes


def json_lines(rows: Sequence[Row]) -> bytes:
    """Return rows as graph JSONL."""
    return b"".join(json_bytes(row) + b"\n" for row in rows)


def new_graph(uri: Path, schema: str | SourceText) -> Graph:
    """Make a graph that only its own process needs: nothing is flushed to the disk."""
    return Graph.init(uri, schema, durability="process", checksums=False, auto_optimize=False)


@dataclass(frozen=True)
class FixtureFailure:
    """A fixture that could not be built; its tests fail with this message."""

    message: str


class Fixtures:
    """The graphs of one test file, built when they are first used."""

    def __init__(self, file: TestFile, schema: SourceText | None = None) -> None:
        self._file = file
        self._schema = file.schema if schema is None else schema
        self._folder = tempfile.TemporaryDirectory(
            prefix="omnigraph-test-", ignore_cleanup_errors=True
        )
        self._built: dict[str | None, Graph | FixtureFailure] = {}
        self._own: list[Graph] = []
        self._samples: dict[str, Sample] = {}
        self._number = 0

    def close(self) -> None:
        """Remove all graphs."""
        shared = [graph for graph in self._built.values() if isinstance(graph, Graph)]
        for graph in (*shared, *self._own):
            graph.close()
        with suppress(OSError):
            self._folder.cleanup()

    def shared(self, name: str | None) -> Graph | FixtureFailure:
        """Return the graph that all tests of a fixture share; its `main` has no writer."""
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    def own(self, name: str | None) -> Graph | FixtureFailure:
        """Return a graph of the fixture's rows that no other test uses."""
        graph = self._build(name)
        if isinstance(graph, Graph):
            self._own.append(graph)
        return graph

    def path(self, name: str) -> Path:
        """Return a path in the folder that nothing uses yet."""
        self._number += 1
        return Path(self._folder.name) / f"{self._number}-{name}"

    def _build(self, name: str | None) -> Graph | FixtureFailure:
        fixture: Fixture = EMPTY if name is None else self._file.fixtures[name]
        try:
            if isinstance(fixture, SampledFixture):
                return self._copied(str(name), fixture)
            assert self._schema is not None  # noqa: S101 - the reader of the file demands one
            graph = new_graph(self.path("graph"), self._schema)
            if fixture.rows:
                graph.load(json_lines(fixture.rows), mode="append", engine="local")
        except OmnigraphError as error:
            return FixtureFailure(str(error) if name is None else f"fixture '{name}': {error}")
        return graph

    def _copied(self, name: str, fixture: SampledFixture) -> Graph:
        if name not in self._samples:
            self._samples[name] = draw_sample(fixture)
        sample = self._samples[name]
        graph = new_graph(self.path("graph"), self._schema or sample.schema)
        if sample.tables:
            nodes = {key.type_name: one for key, one in sample.tables.items() if not key.is_edge}
            edges = {key.type_name: one for key, one in sample.tables.items() if key.is_edge}
            graph.load_tables(nodes=nodes, edges=edges, mode="append")
        return graph
