"""Graphs for fault sweeps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from support.places import Place
from support.s3 import S3Server, serve_s3

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server


@pytest.fixture
def s3_place(s3: S3Server) -> Place:
    return Place(f"s3://{s3.bucket}/faults{next(_NUMBERS)}/graph", s3.options)
