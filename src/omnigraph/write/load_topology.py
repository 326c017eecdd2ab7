"""A first load of edges leaves their topology behind, so that no traversal has to build it.

1. Only where a load has made all rows of an edge table and of the node tables at its ends: then the
   rows that edges end in are known from checking them, and nothing is looked up again.
2. It happens after the commit and never fails a load: whoever needs a topology that is not there
   makes it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.errors import OmnigraphError
from omnigraph.schema import EdgeType
from omnigraph.search.numbering import numbering_of, scan_row_ids
from omnigraph.search.states import TableState
from omnigraph.search.topology import TopologyStates
from omnigraph.search.topology_build import EdgeRows, assemble_topology
from omnigraph.search.topology_store import TopologyStore

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.search.topology import Topology
    from omnigraph.store import Store
    from omnigraph.write.load_stage import StagedType
    from omnigraph.write.load_types import LoadedType

_log = logging.getLogger(__name__)


def persist_topologies(
    types: Mapping[str, LoadedType],
    staged: Mapping[str, StagedType],
    snapshot: Snapshot,
    store: Store,
) -> None:
    """Store the topologies of the edges that a load has just committed."""
    topologies = TopologyStore(store, is_writable=True)
    whole = {
        key: loaded
        for key, loaded in types.items()
        if key in staged and _is_whole(loaded, staged[key], snapshot)
    }
    for loaded in whole.values():
        try:
            topology = _topology(loaded, whole, snapshot)
        except OmnigraphError as error:
            _log.warning("the topology of %s is made at its first use: %s", loaded.table_key, error)
            continue
        if topology is not None:
            topologies.save(topology)


def _topology(
    loaded: LoadedType, whole: Mapping[str, LoadedType], snapshot: Snapshot
) -> Topology | None:
    edge = loaded.owner
    if not isinstance(edge, EdgeType):
        return None
    keys = (edge.table_key, f"node:{edge.from_type}", f"node:{edge.to_type}")
    starts, ends = loaded.take_end_rows("src"), loaded.take_end_rows("dst")
    if any(key not in whole for key in keys) or starts is None or ends is None:
        return None
    # What the rows have left behind is worth as much as the topology will take.
    pa.default_memory_pool().release_unused()
    handles = [snapshot.open(key) for key in keys]
    row_ids = [scan_row_ids(handle) for handle in handles]
    if not all(bool((ids[1:] > ids[:-1]).all()) for ids in row_ids):
        return None
    states = TopologyStates(*(TableState.of(handle) for handle in handles))
    rows = EdgeRows(row_ids[0], starts, ends)
    return assemble_topology(states, rows, numbering_of(row_ids[1]), numbering_of(row_ids[2]))


def _is_whole(loaded: LoadedType, staged: StagedType, snapshot: Snapshot) -> bool:
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
