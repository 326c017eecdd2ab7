"""Vectors that `@embed` asks for, made where rows are staged.

Rows are filled batch by batch, between the rules of single rows and the fragment. What was made
from which text goes into a side file: it is recorded only when the load is published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import OmnigraphError
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.vector_key import VectorKey
from omnigraph.spark.load.vector_cache import SharedVectors
from omnigraph.spark.task_store import task_store
from omnigraph.store.errors import StorageError
from omnigraph.write.embed.row_embedder import EmbedNotes
from omnigraph.write.embed.tasks import EmbedOrder
from omnigraph.write.load.rows.absent import with_made
from omnigraph.write.load.rows.check_rows import CheckedRows

if TYPE_CHECKING:
    from omnigraph.spark.load.plan import LoadContext
    from omnigraph.spark.load.side_files import SideFiles

_NOTES: Final = pa.schema(
    [
        pa.field("property", pa.utf8()),
        pa.field("id", pa.utf8()),
        pa.field("text_hash", pa.utf8()),
    ]
)


class VectorsFailedError(Exception):
    """Vectors cannot be made, and trying the task again would not help."""

    def __init__(self, error: OmnigraphError) -> None:
        self.error = error
        super().__init__(error)


class StageVectors:
    """Fills the vectors of one type in one task."""

    def __init__(self, context: LoadContext, node: NodeType, order: EmbedOrder) -> None:
        self._files = context.files
        self._node = node
        self._shared = SharedVectors(context.files)
        datasets = task_store(context.files).datasets
        self._embedder = order.embedder(datasets, self._shared)

    @property
    def targets(self) -> frozenset[str]:
        """The vector properties that rows need not give."""
        return self._embedder.targets(self._node)

    def filled(self, checked: CheckedRows) -> CheckedRows:
        """Fill the vectors of some rows."""
        try:
            rows = self._embedder.fill(self._node, checked.rows, checked.absent)
        except StorageError:
            raise
        except OmnigraphError as error:
            self._shared.fail(error)
            raise VectorsFailedError(error) from error
        absent = self._embedder.unnamed(self._node, checked.absent)
        return replace(checked, rows=rows, absent=with_made(self._node, rows, absent))

    def noted(self) -> str | None:
        """Write which vector was made from which text to a file; a given vector has no text."""
        tables = [table for notes in self._embedder.notes() for table in _tables(notes)]
        together = pa.concat_tables([_NOTES.empty_table(), *tables])
        if not together.num_rows:
            return None
        return self._files.write("embedded", together)


def stage_vectors(context: LoadContext, entity_type: EntityType) -> StageVectors | None:
    """Return what fills the vectors of a type; None for types that have none to fill."""
    if (
        context.embed is None
        or not isinstance(entity_type, NodeType)
        or not entity_type.embed_sources
    ):
        return None
    return StageVectors(context, entity_type, context.embed)


def _tables(notes: EmbedNotes) -> Iterator[pa.Table]:
    for ids, hashes in (
        (notes.ids, notes.hashes),
        (notes.forgotten, pa.nulls(len(notes.forgotten), pa.utf8())),
    ):
        yield pa.table([pa.repeat(notes.key.property_name, len(ids)), ids, hashes], schema=_NOTES)


def notes_in(files: SideFiles, path: str, node: NodeType) -> Iterator[EmbedNotes]:
    """Read the notes that a task has written about its vectors."""
    table = files.read(path)
    for name in table["property"].unique().to_pylist():
        own = table.filter(pc.equal(table["property"], name))
        made = own.filter(own["text_hash"].is_valid())
        given = own.filter(own["text_hash"].is_null())
        yield EmbedNotes(
            VectorKey.of(node, name),
            ids=_array(made, "id"),
            hashes=_array(made, "text_hash"),
            forgotten=_array(given, "id"),
        )


def _array(table: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.utf8()), *table[name].chunks])
