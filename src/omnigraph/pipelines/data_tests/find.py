"""Finds test files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omnigraph.pipelines.data_tests.model import PATTERN


def find_test_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return files as they are given, and the test files below folders; hidden folders are left."""
    found: dict[Path, None] = {}
    for path in paths:
        below = sorted(path.rglob(PATTERN)) if path.is_dir() else [path]
        for one in below:
            inner = one.relative_to(path).parts if path.is_dir() else ()
            if not any(part.startswith(".") for part in inner):
                found[one] = None
    return tuple(found)
