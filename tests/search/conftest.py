"""Stores for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.store import Store, connect


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return connect(str(tmp_path / "graph"), durability="process")
