"""`graph_fixture`: a graph that is built once, and a branch of it for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from omnigraph.graph import Graph, SourceText
from omnigraph.pipelines.data_tests.fixtures import json_lines, new_graph


class FixtureGraph:
    """A graph in a temporary folder, built when it is first used.

    ```python
    rows = [{"type": "Paper", "data": {"doi": "a"}}]
    papers = FixtureGraph("node Paper { doi: String @key }", rows)
    with papers.branch() as graph:
        graph.mutate('query q() { insert Paper { doi: "b" } }')
    papers.close()
    ```
    """

    def __init__(
        self, schema: str | Path, rows: Sequence[Mapping[str, object]] | Path = ()
    ) -> None:
        self._schema = schema
        self._rows = rows
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0

    @cached_property
    def _graph(self) -> Graph:
        self._folder = tempfile.TemporaryDirectory(prefix="omnigraph-test-")
        schema: str | SourceText = self._schema if isinstance(self._schema, str) else ""
        if isinstance(self._schema, Path):
            schema = SourceText(self._schema.read_text(encoding="utf-8"), str(self._schema))
        graph = new_graph(Path(self._folder.name) / "graph", schema)
        if isinstance(self._rows, Path):
            graph.load(self._rows, mode="append", engine="local")
        elif self._rows:
            graph.load(json_lines([dict(row) for row in self._rows]), mode="append", engine="local")
        return graph

    @contextmanager
    def branch(self) -> Iterator[Graph]:
        """Open the graph on a branch of its own; no other test sees what is written there."""
        self._number += 1
        name = f"test-{self._number}"
        self._graph.branches.create_from("main", name)
        with Graph.open(
            self._graph.uri,
            branch=name,
            durability="process",
            checksums=False,
            auto_optimize=False,
        ) as graph:
            yield graph

    def close(self) -> None:
        """Remove the graph; used again, it is built again."""
        if self._folder is not None:
            self._graph.close()
            del self._graph
            self._folder.cleanup()
            self._folder = None


def graph_fixture(schema: str | Path, rows: Sequence[Mapping[str, object]] | Path = ()) -> Any:
    """Return a pytest fixture: a graph with these rows, for each test on a branch of its own.

    `schema` is a text or the path of a file, `rows` are records as in graph JSONL, or the path of a
    file of them. The graph is built once for all tests that use the fixture.

    ```python
    papers = graph_fixture(Path("papers.pg"), [{"type": "Paper", "data": {"doi": "a"}}])

    def test_it_can_be_changed(papers):
        papers.mutate('query q() { delete Paper where doi = "a" }')
    ```
    """
    import pytest  # noqa: PLC0415 - fixtures without pytest do without it

    shared = FixtureGraph(schema, rows)

    @pytest.fixture
    def graph(pytestconfig: Any) -> Iterator[Graph]:
        pytestconfig.add_cleanup(shared.close)
        with shared.branch() as opened:
            yield opened

    return graph
