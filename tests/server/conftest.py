"""A graph to serve, on disk and on S3."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from support.http_graph import SCHEMA, Setup, TestServer, fill
from support.place_fixtures import bucket, disarmed, s3, s3_root

__all__ = ["bucket", "disarmed", "s3", "s3_root"]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with records; tests copy it."""
    path = tmp_path_factory.mktemp("filled") / "demo.omni"
    with Graph.init(str(path), SCHEMA, durability="process") as graph:
        fill(graph)
    return path


@pytest.fixture
def root(filled: Path, tmp_path: Path) -> Path:
    """A copy of the graph."""
    return Path(shutil.copytree(filled, tmp_path / "demo.omni"))


@pytest.fixture
def server(root: Path) -> Iterator[TestServer]:
    """An open server in this process."""
    found = TestServer(Graph.open(str(root), durability="process"), Setup())
    yield found
    found.close()
