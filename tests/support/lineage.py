"""What callers gave to a commit, apart from its lineage."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lineage.record import LINEAGE_KEYS


def without_lineage(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in LINEAGE_KEYS}
