"""`_embeddings.lance`: which vector was made from which text, by which model.

| column | |
|---|---|
| `type`, `property`, `id` | whose vector: the numbers of type and property as texts, one row each |
| `text_hash` | of the text that the vector was made from |
| `model` | that made it |

A vector is *fresh* when its row has the hash of the current text and the current model, and *stale*
when its row has others. A vector without a row was supplied by the user and is only replaced on
request. Records from before numbers were used have the names instead, and are found by those until
they are replaced; no name begins with a digit. The table is derived: losing it loses the knowledge
of what is stale. Branches share it: the last one to embed an entity owns its row, and the others
embed the entity again.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.cache import BoundedCache
from omnigraph.errors import OmnigraphError
from omnigraph.schema.vector_key import VectorKey
from omnigraph.search.topology.csr import Mask
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.errors import DatasetExistsError, DatasetNotFoundError, StaleBaseError
from omnigraph.store.filters import AllOf, AnyOf, Comparison, Filter, OneOf
from omnigraph.store.records import ROW_ADDRESS, ScanRequest, StagedTransaction
from omnigraph.values import PRIMARY_KEY

LOCATION: Final = "_embeddings.lance"
SCHEMA: Final = pa.schema(
    [
        pa.field("type", pa.utf8(), nullable=False),
        pa.field("property", pa.utf8(), nullable=False),
        pa.field("id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"}),
        pa.field("text_hash", pa.utf8(), nullable=False),
        pa.field("model", pa.utf8(), nullable=False),
    ]
)

_ATTEMPTS_MAX: Final = 5
_PROBED_IDS_MAX: Final = 2_000
"""Up to this many ids, a look-up filters by id; above, it reads all rows of the property."""
_HASH_DIGITS: Final = 32
_MODELS_KEPT_MAX: Final = 256

_log = logging.getLogger(__name__)


def text_hashes(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a hash per text; null stays null."""
    return pa.array([None if text is None else text_hash(text) for text in texts.to_pylist()])


def text_hash(text: str) -> str:
    """Return the hash under which a text is known.

    >>> text_hash("alpha")
    '8ed3f6ad685b959ead7022518e1af76c'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


class EmbeddingsTable:
    """Reads and writes the records of one graph."""

    def __init__(self, datasets: DatasetStore) -> None:
        self._datasets = datasets
        self._models: BoundedCache[frozenset[str]] = BoundedCache(_MODELS_KEPT_MAX)

    def known(self, key: VectorKey, ids: pa.Array | None = None) -> pa.Table:
        """Return `id`, `text_hash` and `model` of recorded vectors, of all when `ids` is None."""
        columns = ["id", "text_hash", "model"]
        handle = self._open()
        if handle is None:
            return SCHEMA.empty_table().select(columns)
        request = ScanRequest(columns=(*columns, "property"), row_filter=_filter(key, ids))
        found = _one_of_each(key, handle.scan(request).read_all()).select(columns)
        return found if ids is None else found.filter(pc.is_in(found["id"], value_set=ids))

    def models(self, key: VectorKey) -> frozenset[str]:
        """Return the models that recorded vectors of a property come from; the last are cached."""
        handle = self._open()
        if handle is None:
            return frozenset()
        asked = (key, handle.at)
        known = self._models.get(asked)
        if known is None:
            request = ScanRequest(columns=("model",), row_filter=_filter(key, None))
            names = pc.unique(handle.scan(request).read_all()["model"])
            known = frozenset(names.to_pylist())
            self._models.put(asked, known, 1)
        return known

    def at(self) -> object:
        """Return what names the state of the records: equal while they are."""
        handle = self._open()
        return None if handle is None else handle.at

    def made_by_others(self, key: VectorKey, model: str) -> pa.Table:
        """Return `id`, `text_hash` and `model` of recorded vectors that come from other models."""
        handle = self._open()
        columns = ["id", "text_hash", "model"]
        if handle is None:
            return SCHEMA.empty_table().select(columns)
        # A record under the names of old counts only without one under numbers: those go first.
        request = ScanRequest(columns=(*columns, "property"), row_filter=_filter(key, None))
        found = _one_of_each(key, handle.scan(request).read_all()).select(columns)
        return found.filter(pc.not_equal(found["model"], model))

    def with_hashes(self, key: VectorKey, *, hashes: pa.Array, model: str) -> pa.Table:
        """Return `id` and `text_hash` of vectors that a model made from one of some texts."""
        handle = self._open()
        columns = ("id", "text_hash")
        if handle is None:
            return SCHEMA.empty_table().select(list(columns))
        parts: tuple[Filter, ...] = (_filter(key, None), Comparison("model", "=", model))
        if len(hashes) <= _PROBED_IDS_MAX:
            parts += (OneOf("text_hash", tuple(hashes.to_pylist())),)
        found = handle.scan(ScanRequest(columns=columns, row_filter=AllOf(parts))).read_all()
        return found.filter(pc.is_in(found["text_hash"], value_set=hashes))

    def fresh(self, key: VectorKey, *, ids: pa.Array, hashes: pa.Array, model: str) -> Mask:
        """Return for each id whether its vector was made from this text hash by this model."""
        known = self.known(key, ids)
        known = known.filter(pc.equal(known["model"], model))
        positions = pc.index_in(ids, value_set=known["id"].combine_chunks())
        recorded = known["text_hash"].combine_chunks().take(positions)
        same = pc.fill_null(pc.equal(recorded, hashes), False)
        mask: Mask = same.to_numpy(zero_copy_only=False)
        return mask

    def record(self, key: VectorKey, *, ids: pa.Array, hashes: pa.Array, model: str) -> bool:
        """Record what vectors were made from; return whether that worked.

        A failure is logged and harmless: the vectors will count as stale.
        """
        type_text, property_text = key.recorded
        rows = pa.table(
            [
                pa.repeat(type_text, len(ids)),
                pa.repeat(property_text, len(ids)),
                ids,
                hashes,
                pa.repeat(model, len(ids)),
            ],
            schema=SCHEMA,
        )
        return self._change(key, ids, rows)

    def forget(self, key: VectorKey, ids: pa.Array | None = None) -> bool:
        """Drop records, all of the property when `ids` is None; return whether that worked."""
        return self._change(key, ids, None)

    def _change(self, key: VectorKey, ids: pa.Array | None, rows: pa.Table | None) -> bool:
        try:
            self._change_with_retries(_filter(key, ids), ids, rows)
        except OmnigraphError as error:
            _log.warning(
                "could not record embeddings of %s.%s: %s", key.type_name, key.property_name, error
            )
            return False
        return True

    def _change_with_retries(
        self, row_filter: Filter, ids: pa.Array | None, rows: pa.Table | None
    ) -> None:
        for attempt in range(_ATTEMPTS_MAX):
            staged = self._staged(row_filter, ids, rows)
            if staged is None:
                return
            try:
                self._datasets.commit_staged(staged, exact=False)
            except (DatasetExistsError, StaleBaseError):
                # Another writer was faster: the rows to replace may have changed.
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
            else:
                return

    def _staged(
        self, row_filter: Filter, ids: pa.Array | None, rows: pa.Table | None
    ) -> StagedTransaction | None:
        handle = self._open()
        if handle is None:
            has_rows = rows is not None and rows.num_rows
            return self._datasets.stage_create(LOCATION, SCHEMA, rows=rows) if has_rows else None
        request = ScanRequest(columns=("id",), row_filter=row_filter, with_row_address=True)
        old = handle.scan(request).read_all()
        if ids is not None:
            old = old.filter(pc.is_in(old["id"], value_set=ids))
        if not old.num_rows and not (rows is not None and rows.num_rows):
            return None
        return self._datasets.stage_update(handle.at, deleted=old[ROW_ADDRESS], inserted=rows)

    def _open(self) -> DatasetHandle | None:
        try:
            return self._datasets.open(LOCATION)
        except DatasetNotFoundError:
            return None


def _filter(key: VectorKey, ids: pa.Array | None) -> Filter:
    """Match the records of a property: under its numbers, and older ones under its names."""
    found: Filter = AllOf(
        (Comparison("type", "=", key.type_name), Comparison("property", "=", key.property_name))
    )
    if key.type_ids:
        numbered = AllOf((OneOf("type", key.type_ids), OneOf("property", key.property_ids)))
        found = AnyOf((numbered, found))
    if ids is None or len(ids) > _PROBED_IDS_MAX:
        return found
    return AllOf((found, OneOf("id", tuple(ids.to_pylist()))))


def _one_of_each(key: VectorKey, found: pa.Table) -> pa.Table:
    """Keep one record of each id: two branches may have known one property by two numbers."""
    if len(found["id"].unique()) == found.num_rows:
        return found
    order = pa.array([*key.property_ids, key.property_name])
    ranked = found.take(pc.sort_indices(pc.index_in(found["property"], value_set=order)))
    ids = ranked["id"].combine_chunks()
    return ranked.take(pc.index_in(ids.unique(), value_set=ids))
