"""Stores of every kind for the suites of this room."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from support.s3 import S3Server, serve_s3

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server


@pytest.fixture
def s3_root(s3: S3Server) -> str:
    return f"s3://{s3.bucket}/case{next(_NUMBERS)}/graph"


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return connect(str(tmp_path / "graph"))
    server: S3Server = request.getfixturevalue("s3")
    root: str = request.getfixturevalue("s3_root")
    return connect(root, storage_options=server.options)


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return connect(str(tmp_path / "graph"))


@pytest.fixture
def s3_store(s3: S3Server, s3_root: str) -> Store:
    return connect(s3_root, storage_options=s3.options)
