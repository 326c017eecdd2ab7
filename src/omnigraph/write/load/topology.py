"""A first load of edges leaves their topology behind, so that no traversal has to build it.

1. Only where a load has made all rows of an edge table and of the node tables at its ends: then the
   rows that edges end in are known from checking them, and nothing is looked up again.
2. It happens after the commit and never fails a load: a traversal builds a topology that is not
   there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from omnigraph.errors import OmnigraphError
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.csr import build_both
from omnigraph.search.topology.row_numbers import Numbering
from omnigraph.search.topology.store import TopologyStore
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.store import Store
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ID, ScanRequest
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.load.stage import StagedTable

_log = logging.getLogger(__name__)


def persist_topologies(
    types: Mapping[str, LoadedType],
    staged: Mapping[str, StagedTable],
    snapshot: Snapshot,
    store: Store,
) -> None:
    """Store the topologies of the edges that a load has just committed."""
    topologies = TopologyStore(store, is_writable=True)
    numberings = _Numberings(snapshot)
    whole = {
        key: loaded
        for key, loaded in types.items()
        if key in staged and _is_whole(loaded, staged[key], snapshot)
    }
    for loaded in whole.values():
        try:
            topology = _topology(loaded, whole, numberings)
        except OmnigraphError as error:
            _log.warning("the topology of %s is made at its first use: %s", loaded.table_key, error)
            continue
        if topology is not None:
            topologies.save(topology)
            topology = None
            loaded.budget.release_memory()


def _topology(
    loaded: LoadedType, whole: Mapping[str, LoadedType], numberings: _Numberings
) -> Topology | None:
    edge = loaded.entity_type
    if not isinstance(edge, EdgeType):
        return None
    keys = (edge.table_key, TableKey.node(edge.from_type), TableKey.node(edge.to_type))
    starts, ends = loaded.take_end_rows("src"), loaded.take_end_rows("dst")
    if any(key not in whole for key in keys) or starts is None or ends is None:
        return None
    edges, sources, targets = (numberings.of(key) for key in keys)
    if edges is None or sources is None or targets is None:
        return None
    states = TopologyStates(*(TableState.of(numberings.snapshot.open(key)) for key in keys))
    counts = sources.count, targets.count
    out, incoming = build_both(starts, ends, counts=counts, same_type=states.same_type)
    return Topology(states, sources, targets, edges, out, incoming, 0)


class _Numberings:
    """How the rows of tables are numbered; many types of edges end in the same nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._known: dict[str, Numbering | None] = {}

    def of(self, table_key: str) -> Numbering | None:
        """Return the numbering of a new table; None if its row ids leave gaps."""
        if table_key not in self._known:
            self._known[table_key] = _numbering(self.snapshot.open(table_key))
        return self._known[table_key]


def _numbering(handle: DatasetHandle) -> Numbering | None:
    """Return how rows of a new table are numbered; None if their row ids leave gaps."""
    first: int | None = None
    count = 0
    for batch in handle.scan(ScanRequest(columns=(), with_row_id=True)):
        row_ids = np.asarray(batch[ROW_ID])
        if first is None and len(row_ids):
            first = int(row_ids[0])
        if len(row_ids) and (
            int(row_ids[0]) != (first or 0) + count or not (np.diff(row_ids) == 1).all()
        ):
            return None
        count += len(row_ids)
    return Numbering(count, first or 0)


def _is_whole(loaded: LoadedType, staged: StagedTable, snapshot: Snapshot) -> bool:
    """Whether a table still holds exactly the rows of the load, in their order."""
    write, entry = staged.write, snapshot.entry(loaded.table_key)
    if write is None or write.base is None:
        return False
    is_ours = (entry.table_branch, entry.table_version) == (
        write.base.base.branch,
        write.intended_version,
    )
    is_all = loaded.live is None and staged.inserted == loaded.row_count == entry.row_count
    return is_ours and is_all
