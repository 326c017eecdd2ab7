"""Folders of clusters, and where they are stored."""

from __future__ import annotations

from support.place_fixtures import bucket, disarmed, s3, s3_root

__all__ = ["bucket", "disarmed", "s3", "s3_root"]
