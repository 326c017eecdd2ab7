"""Graphs on disk and on S3."""

from __future__ import annotations

import pytest

from support.embedding_fixtures import no_provider, server
from support.place_fixtures import disarmed, local_place, s3, s3_place, s3_root
from support.places import Place

__all__ = ["disarmed", "local_place", "no_provider", "s3", "s3_place", "s3_root", "server"]


@pytest.fixture
def place(local_place: Place) -> Place:
    return local_place
