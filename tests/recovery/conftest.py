"""What the tests of this room share."""

from __future__ import annotations

import pytest

from support.place_fixtures import disarmed, local_place, s3, s3_place, s3_root
from support.places import Place

__all__ = ["disarmed", "local_place", "s3", "s3_place", "s3_root"]


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found
