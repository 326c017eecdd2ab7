"""Ends of edges that use another spelling of an id of the same load (compatible reader).

A node may be given as `"00042"` where its id is `42`; edges of the load may then use either. Ends
are rewritten when all nodes are known. A spelling that stands for two nodes is an error of its
edge.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.schema.values.ids import EndpointRemap, build_endpoint_remap
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.endpoints import ENDPOINT_RULE, edge_ends
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers, is_in

Spellings = list[tuple[pa.Array, pa.Array]]
"""Given ids and canonical ones, batch by batch."""


def remaps_of(
    types: Mapping[str, LoadedType], spellings: Mapping[str, Spellings]
) -> dict[str, EndpointRemap]:
    """Return how spellings of ids lead to ids, by node table."""
    return {key: _remap(types[key], found) for key, found in spellings.items()}


def _remap(loaded: LoadedType, spellings: Spellings) -> EndpointRemap:
    given, canonical = (pa.concat_arrays(list(part)) for part in zip(*spellings, strict=True))
    own = [pa.array([], pa.utf8())]
    # Only ids that are also used as another node's spelling matter.
    for _, batch in loaded.batches(("id",)):
        own.append(batch["id"].filter(pa.array(is_in(batch["id"], given))))
    return build_endpoint_remap(given, canonical, pa.concat_arrays(own))


def remap_ends(
    loaded: LoadedType, remaps: Mapping[str, EndpointRemap]
) -> tuple[LoadedType, Integers, list[Violation]]:
    """Rewrite the ends of edges; also returns the rows whose ends are ambiguous, and why."""
    edge = loaded.entity_type
    if not isinstance(edge, EdgeType):
        raise TypeError(f"{loaded.table_key} has no ends")
    own = {
        end: remaps[TableKey.node(node)]
        for end, node in edge_ends(edge)
        if TableKey.node(node) in remaps
    }
    rows: list[int] = []
    found: list[tuple[str, str, str, str]] = []
    for start, batch in loaded.batches(tuple(own)):
        for end, remap in own.items():
            errors = remap.apply(batch[end]).errors
            for row in np.flatnonzero(errors.messages.is_valid()).tolist():
                rows.append(start + row)
                text, code = errors.messages[row].as_py(), errors.codes[row].as_py()
                found.append((end, batch[end][row].as_py(), text, code))
    numbers = np.array(rows, np.int64)
    violations = [
        Violation(
            position, edge.name, end, value, ENDPOINT_RULE, code, message, table_key=edge.table_key
        )
        for position, (end, value, message, code) in zip(
            loaded.positions(numbers), found, strict=True
        )
    ]
    return loaded.remapped(own), numbers, violations
