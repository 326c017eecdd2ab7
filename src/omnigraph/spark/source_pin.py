"""Which snapshot a read sees.

It is looked up once, when the source is made, and then travels as a commit id: every task and
every later action of the same frame sees exactly it, whatever is written meanwhile. On Spark
Connect a frame is made anew for every action; give `versionAsOf` there, as `Graph.to_spark` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from omnigraph.graph import Graph, OpenMode, ReadTarget, Snapshot
from omnigraph.spark.options import SourceOptionError, SourceOptions
from omnigraph.store import StoreSettings

_COMMIT_ID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_US_PER_S: Final = 1_000_000


@dataclass(frozen=True)
class Pin:
    """A snapshot by name: enough to open it anywhere."""

    settings: StoreSettings
    branch: str
    commit_id: str

    def graph(self) -> Graph:
        """Open the graph for reading only."""
        return open_graph(self.settings, self.branch)

    def snapshot(self) -> Snapshot:
        """Open the snapshot."""
        return self.graph().snapshot_of(ReadTarget.commit(self.commit_id))


def open_graph(settings: StoreSettings, branch: str) -> Graph:
    """Open a graph for reading only, bound to a branch."""
    return Graph.open(
        settings.root.uri,
        branch=branch,
        mode=OpenMode.READ_ONLY,
        storage_options=settings.storage_options,
        auto_optimize=False,
    )


def pin_snapshot(options: SourceOptions) -> Pin:
    """Look up which snapshot the options mean now."""
    graph = open_graph(options.settings, options.branch)
    return Pin(options.settings, options.branch, _meant(graph, options).commit_id)


def _meant(graph: Graph, options: SourceOptions) -> Snapshot:
    version, moment = options["versionAsOf"], options["timestampAsOf"]
    if version is not None and moment is not None:
        raise SourceOptionError("timestampAsOf", "contradicts `versionAsOf`: give one of them")
    if moment is not None:
        return graph.snapshot_of(ReadTarget.at(_microseconds(moment)))
    if version is None:
        return graph.snapshot()
    if _COMMIT_ID.fullmatch(version):
        return graph.snapshot_of(ReadTarget.commit(version))
    if version.isdecimal():
        return graph.snapshot_at_version(int(version))
    return graph.snapshot_of(ReadTarget.tag(version))


def _microseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        problem = f"is a date or an ISO 8601 moment, in UTC without a zone; found '{text}'"
        raise SourceOptionError("timestampAsOf", problem) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _US_PER_S + since.microseconds
