"""Embedding in tasks: an order that is sent to a task, and what the task does with it.

1. An order holds everything that a task needs: the configuration of the provider as the caller's
   process has resolved it, and the published entries of the types that have vectors.
2. A provider that is configured wrongly fails at the first text, as it does in one
   process: a load that needs no vector needs no key.
3. The notes to record are sent back; only the process that commits writes them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.clock import SystemClock
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.manifest import Entry
from omnigraph.manifest.snapshot import open_entry
from omnigraph.schema import NodeType
from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.config import EmbeddingConfig
from omnigraph.search.embedding.table import EmbeddingsTable
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.write.embed.row_embedder import EmbedMode, EmbedNotes, RowEmbedder, VectorCache
from omnigraph.write.stage.columns import Mask
from omnigraph.write.stage.stored_rows import StoredRows


@dataclass(frozen=True)
class EmbedOrder:
    """What tasks embed, and how; `problem` is why no text can be sent."""

    mode: EmbedMode
    entries: Mapping[str, Entry]
    config: EmbeddingConfig | None = None
    problem: OmnigraphError | None = None

    def embedder(self, datasets: DatasetStore, cache: VectorCache | None) -> TaskEmbedder:
        """Return what fills the rows of one task."""
        return TaskEmbedder(self, datasets, cache)


def order_for(embedder: RowEmbedder, entries: Mapping[str, Entry]) -> EmbedOrder | None:
    """Return what tasks have to know to fill vectors as an embedder would; None if it makes none.

    `entries` are those of the node types that have vectors to fill.
    """
    if not embedder.is_active or not entries:
        return None
    try:
        config = embedder.clients.get().config
    except OmnigraphError as error:
        return EmbedOrder(embedder.mode, entries, problem=error)
    return EmbedOrder(embedder.mode, entries, config)


class TaskEmbedder:
    """Fills the vectors of the rows of one task."""

    def __init__(
        self, order: EmbedOrder, datasets: DatasetStore, cache: VectorCache | None
    ) -> None:
        table = EmbeddingsTable(datasets)
        self._rows = RowEmbedder(_OrderedClients(order), table, order.mode, cache=cache)
        self._stored = StoredRows(_OrderedTables(order.entries, datasets))

    def targets(self, node: NodeType) -> frozenset[str]:
        """Return the vector properties that need not be given, because they are filled here."""
        return self._rows.targets(node)

    def fill(
        self, node: NodeType, rows: pa.RecordBatch, absent: Mapping[str, Mask] | None = None
    ) -> pa.RecordBatch:
        """Fill the vectors of some rows, which have all stored columns."""
        filled = self._rows.fill(node, pa.Table.from_batches([rows]), self._stored, absent)
        return next(iter(filled.combine_chunks().to_batches()), rows)

    def unnamed(self, node: NodeType, absent: Mapping[str, Mask]) -> Mapping[str, Mask]:
        """Return what rows still do not name after `fill`."""
        return self._rows.unnamed(node, absent)

    def notes(self) -> list[EmbedNotes]:
        """Return what is to be recorded once the rows are published."""
        return self._rows.notes()


class _OrderedClients:
    """The client that an order describes."""

    is_configured = True

    def __init__(self, order: EmbedOrder) -> None:
        self._order = order
        self._client: EmbeddingClient | None = None

    def get(self) -> EmbeddingClient:
        if self._client is None:
            if self._order.problem is not None:
                raise self._order.problem
            if self._order.config is None:
                raise TypeError("an order has a configuration or a problem")
            self._client = EmbeddingClient(self._order.config, SystemClock())
        return self._client


@dataclass(frozen=True)
class _OrderedTables:
    """The tables of an order, opened from storage."""

    entries: Mapping[str, Entry]
    datasets: DatasetStore

    def entry(self, table_key: str) -> Entry:
        return self.entries[table_key]

    def open(self, table_key: str) -> DatasetHandle:
        return open_entry(self.datasets, self.entries[table_key])
