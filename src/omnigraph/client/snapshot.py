"""What a branch of a served graph publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RemoteSnapshot:
    """The datasets of a branch and their versions; their rows are read by queries."""

    branch: str
    manifest_version: int
    shape: Mapping[str, Any]

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> RemoteSnapshot:
        """Read the answer of a server."""
        return cls(shape["graph_branch"], shape["graph_manifest_version"], shape)

    def to_json(self) -> dict[str, Any]:
        """Return what the branch publishes, table by table."""
        return dict(self.shape)
