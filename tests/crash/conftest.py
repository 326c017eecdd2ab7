"""Graphs and children for runs with real crashes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.nursery import Nursery
from omnigraph.recovery import failpoints
from support.places import Place
from support.s3 import S3Server, serve_s3

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server


@pytest.fixture
def s3_place(s3: S3Server) -> Place:
    return Place(f"s3://{s3.bucket}/crash{next(_NUMBERS)}/graph", s3.options)


@pytest.fixture
def local_place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "graph"))


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Leave no failpoint armed."""
    yield
    failpoints.disarm()
