"""What the tests of this room share."""

from __future__ import annotations

from support.place_fixtures import disarmed

__all__ = ["disarmed"]
