"""Graphs at the place of a cluster's graphs are made and migrated by the cluster alone.

A cluster keeps its graphs at `<root>/graphs/<id>.omni`, and its ledger at
`<root>/__cluster/state.json`. For a root of any other shape storage is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from omnigraph.errors import ConflictError
from omnigraph.store.connect import StoreSettings, open_objects
from omnigraph.store.objects.protocol import exists
from omnigraph.store.uri import parse_root

LEDGER: Final = "__cluster/state.json"
_DECLARED: Final = re.compile(r"(?P<root>.+)/graphs/[^/]+\.omni/?")


class InsideClusterError(ConflictError):
    """A graph belongs to a cluster, which alone makes it and changes its schema."""

    code = "OG-IN-CLUSTER"
    hint = "declare it in the cluster's configuration, then `omnigraph cluster apply`"
    template = "{operation} is refused: {uri} belongs to the cluster at {root}"
    operation: str
    uri: str
    root: str


def require_outside_cluster(
    operation: str, uri: str, *, storage_options: Mapping[str, str] | None = None
) -> None:
    """Refuse an operation on a graph whose root is a place of a cluster."""
    graph_root = parse_root(uri)
    declared = _DECLARED.fullmatch(graph_root.uri)
    if declared is None:
        return
    root = declared["root"]
    settings = StoreSettings(parse_root(root), dict(storage_options or {}))
    if exists(open_objects(settings), LEDGER):
        raise InsideClusterError(operation, graph_root.uri, root)
