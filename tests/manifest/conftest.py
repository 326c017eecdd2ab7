"""Graphs on disk and on S3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from support.places import Place
from support.s3 import S3Server, serve_s3

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server


@pytest.fixture
def s3_place(s3: S3Server) -> Place:
    return Place(f"s3://{s3.bucket}/manifest{next(_NUMBERS)}/graph", s3.options)


@pytest.fixture
def local_place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "graph"))


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def graph(place: Place) -> Graph:
    return place.init()


@pytest.fixture
def local_graph(local_place: Place) -> Graph:
    return local_place.init()
