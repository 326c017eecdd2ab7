"""Graphs and children for runs with real crashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.nursery import Nursery
from support.place_fixtures import disarmed, local_place, s3, s3_place, s3_root

__all__ = ["disarmed", "local_place", "s3", "s3_place", "s3_root"]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery
