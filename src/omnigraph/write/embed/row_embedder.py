"""Embedding at write time: rows of a write get the vectors that `@embed` asks for.

1. A vector is *ours* when `_embeddings.lance` has a record of it and it is still the stored one.
   All others were given by a user: only `all` replaces them.
2. `missing` fills a vector that is null, and one of ours whose text or model has changed. `all`
   makes every vector of the write. `off` makes none.
3. A text is paid for once: within a write it is sent once, and a text that a vector of ours was
   made from takes that vector, bit by bit, as long as the model is the same. So a row that is
   written again with the same text is the same row. Only the call `embed` with `all` pays for
   every text again.
4. Rows without a text keep the vector that they have.
5. Records are written after the commit. A write that dies between the two leaves vectors that count
   as given.
6. An API key in the environment alone sends no text anywhere: a provider must be named.
7. Texts are sent in requests of a bounded size, and the vectors of one request are cached before
   the next one is sent: a retry after a failure pays only for the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import StrEnum
from itertools import chain
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.schema import Catalog, NodeType
from omnigraph.schema.catalog import EmbedSource
from omnigraph.schema.vector_key import VectorKey
from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.columns import embed_column, has_text
from omnigraph.search.embedding.table import EmbeddingsTable, text_hash, text_hashes
from omnigraph.search.embedding.vectors import Vectors
from omnigraph.write.stage.columns import Mask, flat, is_in
from omnigraph.write.stage.delta import GraphDelta
from omnigraph.write.stage.stored_rows import StoredRows

VECTORS_KEPT_MAX: Final = 20_000
"""So many vectors of one write are cached, for texts that occur again."""
_TEXTS_ASKED_MAX: Final = 2_048
_RECORDED_ROWS: Final = 200_000


class EmbedMode(StrEnum):
    """Which vectors a write makes."""

    MISSING = "missing"
    ALL = "all"
    OFF = "off"


class VectorTextMissingError(InvalidInputError):
    """A required vector cannot be made, because there is no text to make it from."""

    code = "OG-EMBED-TEXT"
    hint = "give `{source}` a text, or the vector itself"
    template = (
        "{type_name} '{entity_id}' needs the vector '{property_name}', and its text"
        " '{source}' is empty"
    )
    type_name: str
    property_name: str
    source: str
    entity_id: str


@dataclass(frozen=True)
class _Target:
    """A vector property that is filled from a text."""

    node: NodeType
    name: str
    embed: EmbedSource

    @property
    def key(self) -> VectorKey:
        return VectorKey.of(self.node, self.name)

    @property
    def dimension(self) -> int:
        found = self.node.properties[self.name].prop_type.dimension
        if found is None:
            raise TypeError(f"{self.node.name}.{self.name} is no vector")
        return found


@dataclass(frozen=True)
class _Verdict:
    """What happens to each row of one target."""

    wanted: Mask
    """A vector is made, or copied from a row with the same text."""
    given: Mask
    """The write itself gives another vector: the record of the old one would be wrong."""


@dataclass(frozen=True)
class EmbedNotes:
    """What is to be recorded about vectors of one property once the write is published.

    The vectors of `ids` were made from texts with these hashes; those of `forgotten` were given.
    """

    key: VectorKey
    ids: pa.Array
    hashes: pa.Array
    forgotten: pa.Array


@dataclass
class _Notes:
    """What is to be recorded about one target."""

    ids: list[pa.Array] = field(default_factory=list)
    hashes: list[pa.Array] = field(default_factory=list)
    forgotten: list[pa.Array] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(map(len, (*self.ids, *self.forgotten)))

    def add(self, part: EmbedNotes) -> None:
        self.ids.append(part.ids)
        self.hashes.append(part.hashes)
        self.forgotten.append(part.forgotten)

    def together(self, key: VectorKey) -> EmbedNotes:
        columns = (_together(parts) for parts in (self.ids, self.hashes, self.forgotten))
        return EmbedNotes(key, *columns)


class EmbeddingClients(Protocol):
    """Makes a client when the first text needs one."""

    @property
    def is_configured(self) -> bool:
        """Whether a provider was chosen."""
        ...

    def get(self) -> EmbeddingClient:
        """Return the client; raises when its configuration is missing or wrong."""
        ...


class VectorCache(Protocol):
    """Vectors that other tasks of the same write have paid for."""

    def known(self, type_name: str, property_name: str, texts: list[str]) -> dict[str, Vectors]:
        """Return the vectors of those texts that have one."""
        ...

    def add(self, type_name: str, property_name: str, texts: list[str], vectors: Vectors) -> None:
        """Add vectors that were paid for."""
        ...


class _KnownVectors(OrderedDict[str, "Vectors"]):
    """Vectors by text; the oldest are dropped."""

    def trim(self) -> None:
        while len(self) > VECTORS_KEPT_MAX:
            self.popitem(last=False)


class RowEmbedder:
    """Fills the vectors of one write, over all its batches and attempts."""

    def __init__(
        self,
        clients: EmbeddingClients,
        table: EmbeddingsTable,
        mode: EmbedMode,
        *,
        is_asked_for: bool = False,
        cache: VectorCache | None = None,
    ) -> None:
        self.clients = clients
        self._table = table
        self.mode = mode
        self._is_asked_for = is_asked_for or mode is EmbedMode.ALL
        self._makes_again = is_asked_for and mode is EmbedMode.ALL
        self._cache = cache
        self._known: dict[tuple[str, str], _KnownVectors] = {}
        self._notes: dict[VectorKey, _Notes] = {}
        self._others: list[Callable[[], Iterator[EmbedNotes]]] = []
        self.texts_sent = 0
        """How many texts the provider was asked for."""

    @property
    def is_active(self) -> bool:
        """Whether vectors are made at all; asks no server."""
        if self.mode is EmbedMode.OFF:
            return False
        return self._is_asked_for or self.clients.is_configured

    def targets(self, node: NodeType) -> frozenset[str]:
        """Return the vector properties that need not be given, because they are filled here."""
        return frozenset(node.embed_sources) if self.is_active else frozenset()

    def filled(self, delta: GraphDelta, catalog: Catalog, stored: StoredRows) -> GraphDelta:
        """Fill the rows of a whole change; a new attempt begins here."""
        self._notes.clear()
        if not self.is_active:
            return delta
        tables = dict(delta.tables)
        for node in catalog.node_types.values():
            table = delta.tables.get(node.table_key)
            if table is not None and node.embed_sources and table.rows.num_rows:
                rows = self.fill(node, table.rows, stored)
                tables[node.table_key] = replace(table, rows=rows)
        return GraphDelta(tables)

    def fill(
        self,
        node: NodeType,
        rows: pa.Table,
        stored: StoredRows,
        absent: Mapping[str, Mask] | None = None,
    ) -> pa.Table:
        """Fill the vectors of some rows of one type, which have all stored columns.

        `absent` are properties that rows do not name: a stored vector stays while its text does.
        """
        if not self.is_active:
            return rows
        for name, embed in node.embed_sources.items():
            is_absent = (absent or {}).get(name, np.zeros(rows.num_rows, np.bool_))
            rows = self._filled(_Target(node, name, embed), rows, stored, is_absent)
        return rows

    def unnamed(self, node: NodeType, absent: Mapping[str, Mask]) -> Mapping[str, Mask]:
        """Return what rows still do not name after `fill`: with `all` every vector is new."""
        if not self.is_active or self.mode is not EmbedMode.ALL:
            return absent
        return {name: mask for name, mask in absent.items() if name not in node.embed_sources}

    def notes(self) -> list[EmbedNotes]:
        """Return what is to be recorded."""
        return [notes.together(key) for key, notes in self._notes.items()]

    def note_later(self, notes: Callable[[], Iterator[EmbedNotes]]) -> None:
        """Add notes from elsewhere, such as tasks; `notes` is called when they are recorded."""
        self._others.append(notes)

    def record(self) -> None:
        """Record what the vectors were made from; call it after the write is published."""
        everything = chain(self.notes(), *(others() for others in self._others))
        for notes in _gathered(everything):
            if len(notes.forgotten):
                self._table.forget(notes.key, notes.forgotten)
            if len(notes.ids):
                model = self.clients.get().model
                self._table.record(notes.key, ids=notes.ids, hashes=notes.hashes, model=model)
        self._notes.clear()
        self._others.clear()

    # -- one target -----------------------------------------------------------------------------

    def _filled(
        self, target: _Target, rows: pa.Table, stored: StoredRows, is_absent: Mask
    ) -> pa.Table:
        verdict = self._verdict(target, rows, stored)
        if self.mode is not EmbedMode.ALL:
            kept = _keeps_vector(target, rows, verdict.wanted & is_absent, stored)
            verdict = replace(verdict, wanted=verdict.wanted & ~kept)
        if verdict.wanted.any():
            rows = self._with_vectors(target, rows, verdict.wanted, stored)
        _require_vectors(target, rows.filter(pa.array(~is_absent)))
        if verdict.given.any():
            self._notes_of(target).forgotten.append(flat(rows["id"]).filter(verdict.given))
        return rows

    def _verdict(self, target: _Target, rows: pa.Table, stored: StoredRows) -> _Verdict:
        texts, vectors = flat(rows[target.embed.source]), flat(rows[target.name])
        can_be_made = has_text(texts)
        nothing = np.zeros(rows.num_rows, np.bool_)
        if self.mode is EmbedMode.ALL:
            return _Verdict(can_be_made, nothing)
        is_null = vectors.is_null().to_numpy(zero_copy_only=False)
        wanted = can_be_made & is_null
        ids = flat(rows["id"])
        known = self._table.known(target.key, ids.filter(pa.array(~is_null)))
        if not known.num_rows:
            return _Verdict(wanted, nothing)
        is_recorded = is_in(ids, known["id"]) & ~is_null
        is_ours = is_recorded & _is_stored_vector(target, ids, vectors, stored)
        places = pc.index_in(ids, value_set=flat(known["id"]))
        recorded = flat(known["text_hash"]).take(places)
        models = flat(known["model"]).take(places)
        same = pc.and_(
            pc.equal(recorded, text_hashes(texts)), pc.equal(models, self.clients.get().model)
        )
        is_fresh = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        stale = is_ours & ~is_fresh & can_be_made
        return _Verdict(wanted | stale, is_recorded & ~is_ours)

    def _with_vectors(
        self, target: _Target, rows: pa.Table, wanted: Mask, stored: StoredRows
    ) -> pa.Table:
        client = self.clients.get()
        client.require_model(target.name, target.embed.model)
        ids = flat(rows["id"]).filter(wanted)
        texts = flat(rows[target.embed.source]).filter(wanted)
        known = self._known.setdefault((target.node.name, target.name), _KnownVectors())
        if not self._makes_again:
            self._recall(target, client, texts, known, stored)
        self._ask(target, client, texts, known)
        made = embed_column(client, texts, target.dimension, known=known)
        known.trim()
        notes = self._notes_of(target)
        notes.ids.append(ids)
        notes.hashes.append(text_hashes(texts))
        place = rows.schema.get_field_index(target.name)
        column = _replaced(flat(rows[target.name]), wanted, made)
        return rows.set_column(place, rows.schema.field(place), column)

    def _ask(
        self, target: _Target, client: EmbeddingClient, texts: pa.Array, known: _KnownVectors
    ) -> None:
        """Get the vectors of texts that were not paid for yet."""
        missing = [text for text in pc.unique(texts).to_pylist() if text not in known]
        own = (target.node.name, target.name)
        for start in range(0, len(missing), _TEXTS_ASKED_MAX):
            asked = missing[start : start + _TEXTS_ASKED_MAX]
            if self._cache is not None:
                known.update(self._cache.known(*own, asked))
                asked = [text for text in asked if text not in known]
            if not asked:
                continue
            found = client.embed(asked, dimension=target.dimension, role="document")
            self.texts_sent += len(asked)
            known.update(zip(asked, found, strict=True))
            if self._cache is not None:
                self._cache.add(*own, asked, found)

    def _recall(
        self,
        target: _Target,
        client: EmbeddingClient,
        texts: pa.Array,
        known: _KnownVectors,
        stored: StoredRows,
    ) -> None:
        """Reuse vectors of stored rows that have the same text."""
        asked = [text for text in pc.unique(texts).to_pylist() if text not in known]
        if not asked or not stored.row_count(target.node.table_key):
            return
        by_hash = {text_hash(text): text for text in asked}
        recorded = self._table.with_hashes(
            target.key, hashes=pa.array(by_hash, pa.utf8()), model=client.model
        )
        if not recorded.num_rows:
            return
        columns = ("id", target.embed.source, target.name)
        found = stored.where(target.node.table_key, "id", recorded["id"], columns=columns)
        found = found.filter(found[target.name].is_valid())
        hashes = text_hashes(found[target.embed.source])
        places = pc.index_in(found["id"], value_set=flat(recorded["id"]))
        # Another branch may have embedded another text of this row since.
        is_same = flat(
            pc.fill_null(pc.equal(hashes, flat(recorded["text_hash"]).take(places)), False)
        )
        vectors = _matrix(flat(found[target.name]).filter(is_same), target.dimension)
        for digest, vector in zip(hashes.filter(is_same).to_pylist(), vectors, strict=True):
            known[by_hash[digest]] = vector

    def _notes_of(self, target: _Target) -> _Notes:
        return self._notes.setdefault(target.key, _Notes())


def _together(parts: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.array([], pa.utf8())


def _gathered(notes: Iterable[EmbedNotes]) -> Iterator[EmbedNotes]:
    """Join notes about one property: each record is a commit, and memory is bounded."""
    waiting: dict[VectorKey, _Notes] = {}
    for part in notes:
        own = waiting.setdefault(part.key, _Notes())
        own.add(part)
        if own.rows >= _RECORDED_ROWS:
            yield waiting.pop(part.key).together(part.key)
    for key, own in waiting.items():
        yield own.together(key)


def _is_stored_vector(
    target: _Target, ids: pa.Array, vectors: pa.Array, stored: StoredRows
) -> Mask:
    """Return per row whether its vector is, bit by bit, the stored one."""
    result: Mask = np.zeros(len(ids), np.bool_)
    present = vectors.is_valid()
    found = stored.where(
        target.node.table_key, "id", ids.filter(present), columns=("id", target.name)
    )
    found = found.filter(found[target.name].is_valid())
    places = pc.index_in(ids, value_set=flat(found["id"]))
    both = np.flatnonzero(pc.and_(places.is_valid(), present).to_numpy(zero_copy_only=False))
    if not len(both):
        return result
    old = _matrix(flat(found[target.name]).take(places.take(pa.array(both))), target.dimension)
    new = _matrix(vectors.take(pa.array(both)), target.dimension)
    result[both] = (old.view(np.uint32) == new.view(np.uint32)).all(axis=1)
    return result


def _keeps_vector(target: _Target, rows: pa.Table, asked: Mask, stored: StoredRows) -> Mask:
    """Return which of some rows have a stored vector whose text they do not change."""
    result: Mask = np.zeros(rows.num_rows, np.bool_)
    numbers = np.flatnonzero(asked)
    key = target.node.table_key
    if not len(numbers) or not stored.row_count(key):
        return result
    own = rows.select(["id", target.embed.source]).take(pa.array(numbers))
    columns = ("id", target.embed.source, target.name)
    found = stored.where(key, "id", own["id"], columns=columns)
    found = found.filter(found[target.name].is_valid())
    places = pc.index_in(flat(own["id"]), value_set=flat(found["id"]))
    before = flat(found[target.embed.source]).take(places)
    same = pc.equal(before, flat(own[target.embed.source]).cast(before.type))
    result[numbers] = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return result


def _matrix(vectors: pa.Array, dimension: int) -> npt.NDArray[np.float32]:
    """Return vectors, none of them null, as rows of numbers."""
    numbers = vectors.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers, np.float32).reshape(len(vectors), dimension)


def _replaced(column: pa.Array, wanted: Mask, made: pa.Array) -> pa.Array:
    """Return a column with some values replaced, in their order."""
    picks = np.arange(len(column), dtype=np.int64)
    picks[wanted] = len(column) + np.arange(len(made), dtype=np.int64)
    return pa.concat_arrays([column, made.cast(column.type)]).take(pa.array(picks))


def _require_vectors(target: _Target, rows: pa.Table) -> None:
    if target.node.properties[target.name].prop_type.nullable:
        return
    missing = rows.filter(rows[target.name].is_null())
    if missing.num_rows:
        raise VectorTextMissingError(
            type_name=target.node.name,
            property_name=target.name,
            source=target.embed.source,
            entity_id=missing["id"][0].as_py(),
        )
