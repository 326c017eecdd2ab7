"""Whether a text may be compared with the stored vectors of a property.

Distances between vectors of two models mean nothing. A record says which model made a vector, and
of which text. It counts for a snapshot only where the row is there with that very text: branches
share the records, and the records of deleted rows stay.
"""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc

from omnigraph.cache import BoundedCache
from omnigraph.manifest import Snapshot
from omnigraph.schema import NodeType
from omnigraph.schema.vector_key import VectorKey
from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.errors import EmbeddingModelsMixedError
from omnigraph.search.embedding.table import EmbeddingsTable, text_hashes
from omnigraph.store.filters import AllOf, IsNull, Negation, OneOf
from omnigraph.store.records import ScanRequest

_IDS_PROBED: Final = 2_000
_FOUND_KEPT_MAX: Final = 256


class VectorOrigins:
    """Compares the model in use with those that made the vectors of a snapshot."""

    def __init__(self, recorded: EmbeddingsTable) -> None:
        self._recorded = recorded
        self._found: BoundedCache[tuple[tuple[str, str], ...]] = BoundedCache(_FOUND_KEPT_MAX)

    def require(
        self, client: EmbeddingClient, snapshot: Snapshot, node: NodeType, property_name: str
    ) -> None:
        """Raise unless all vectors with a known origin come from the model in use."""
        key = VectorKey.of(node, property_name)
        models = self._recorded.models(key)
        client.require_one_of(property_name, models)
        source = node.embed_sources.get(property_name)
        if source is None or models <= {client.model}:
            return
        entry = snapshot.entry(node.table_key)
        stored = (entry.location, entry.table_branch, entry.table_version)
        asked = (key, client.model, self._recorded.at(), *stored)
        found = self._found.get(asked)
        if found is None:
            found = self._others(key, snapshot, node, property_name, client.model)
            self._found.put(asked, found, 1)
        for entity_id, model in found:
            raise EmbeddingModelsMixedError(
                property_name, entity_id=entity_id, recorded=model, resolved=client.model
            )

    def _others(
        self, key: VectorKey, snapshot: Snapshot, node: NodeType, property_name: str, model: str
    ) -> tuple[tuple[str, str], ...]:
        """Return the id and the model of a vector that another model has made, if there is one."""
        records = self._recorded.made_by_others(key, model).combine_chunks()
        source = node.embed_sources[property_name].source
        handle = snapshot.open(node.table_key)
        for start in range(0, records.num_rows, _IDS_PROBED):
            part = records.slice(start, _IDS_PROBED)
            is_there = OneOf("id", tuple(part["id"].to_pylist()))
            request = ScanRequest(
                columns=("id", source),
                row_filter=AllOf((is_there, Negation(IsNull(property_name)))),
            )
            rows = handle.scan(request).read_all().combine_chunks()
            places = pc.index_in(rows["id"], value_set=part["id"].combine_chunks())
            recorded = part["text_hash"].combine_chunks().take(places.combine_chunks())
            is_same = pc.equal(text_hashes(rows[source]), recorded)
            for row in rows.append_column("place", places).filter(is_same).slice(0, 1).to_pylist():
                return ((str(row["id"]), str(part["model"][row["place"]])),)
        return ()
