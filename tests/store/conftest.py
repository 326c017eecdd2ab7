"""Stores of every kind for the suites of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from support.place_fixtures import s3, s3_root
from support.s3 import S3Server

__all__ = ["s3", "s3_root"]


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
