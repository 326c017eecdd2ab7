"""Fixtures of clusters."""

from __future__ import annotations

from support.place_fixtures import bucket, s3, s3_root

__all__ = ["bucket", "s3", "s3_root"]
