"""Graphs on disk and on S3."""

from __future__ import annotations

import pytest

from omnigraph.graph import Graph
from support.place_fixtures import local_place, s3, s3_place, s3_root
from support.places import Place

__all__ = ["local_place", "s3", "s3_place", "s3_root"]


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
