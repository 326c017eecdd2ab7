"""Graphs for fault sweeps."""

from __future__ import annotations

from support.place_fixtures import disarmed, s3, s3_place, s3_root

__all__ = ["disarmed", "s3", "s3_place", "s3_root"]
