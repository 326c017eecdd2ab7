"""A folder with a graph, and pipelines in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pipelines import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.graph.close()
