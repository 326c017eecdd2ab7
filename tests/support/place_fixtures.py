"""Fixtures that several rooms share: where graphs lie, and failpoints that do not stay armed.

The `conftest.py` of a room imports those that it needs. They are not in the one of the whole suite,
because the S3 server would then be imported for every test.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import failpoints
from support.places import Place
from support.s3 import S3Server, serve_s3

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server


@pytest.fixture
def s3_root(s3: S3Server) -> str:
    """An address that nobody has used before."""
    return f"s3://{s3.bucket}/case{next(_NUMBERS)}/graph"


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A server that commands find by the environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture
def s3_place(s3: S3Server, s3_root: str) -> Place:
    return Place(s3_root, s3.options)


@pytest.fixture
def local_place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "graph"))


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Leave no failpoint armed."""
    yield
    failpoints.disarm()
