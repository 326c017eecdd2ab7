"""Stores for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from support.place_fixtures import s3
from support.s3 import S3Server

__all__ = ["s3"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return connect(str(tmp_path / "graph"), durability="process")


@pytest.fixture
def s3_store(s3: S3Server, tmp_path: Path) -> Store:
    return connect(f"s3://{s3.bucket}/{tmp_path.name}/graph", storage_options=s3.options)
