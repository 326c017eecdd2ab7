"""One graph, in each of the ways to reach it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from support.ways import RECORDS, SCHEMA, WAYS, reached


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A graph with two people who know each other."""
    root = tmp_path / "people.omni"
    with Graph.init(root, SCHEMA, durability="process") as graph:
        graph.load(RECORDS, mode="append", message="the first", properties={"batch": "7"})
    return root


@pytest.fixture(params=WAYS)
def graph(request: pytest.FixtureRequest, root: Path) -> Iterator[Any]:
    """The graph, in each of the ways."""
    with reached(request.param, root) as opened:
        yield opened
