"""Draws a sample of a graph: some nodes of some types, what they lead to, the edges between them.

The same commit, sample and seed give the same rows, wherever they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph, OpenMode, Snapshot
from omnigraph.names import TableKey
from omnigraph.pipelines.data_tests.model import SampledFixture
from omnigraph.pipelines.diagnostics import did_you_mean
from omnigraph.schema import EdgeType, EntityType


class SampleTypeError(InvalidInputError):
    """A sample names a type that the graph does not have."""

    code = "OG-TEST-SAMPLE"
    hint = "`sample` names node types, `follow` edge types of the graph"

    kind: str
    name: str
    known: tuple[str, ...]

    def _message(self) -> str:
        end = did_you_mean(self.name, self.known)
        return f"the graph of the fixture has no {self.kind} type '{self.name}'{end}"


@dataclass(frozen=True)
class Sample:
    """The schema of a graph, and rows by the key of their type."""

    schema: str
    tables: Mapping[TableKey, pa.Table]


def draw_sample(fixture: SampledFixture) -> Sample:
    """Read the rows of a fixture from its graph, which is opened for reading only."""
    with Graph.open(fixture.graph, mode=OpenMode.READ_ONLY) as graph:
        snapshot = graph.snapshot_of(fixture.target)
        drawing = _Drawing(graph, snapshot, fixture)
        if fixture.sample:
            drawing.draw()
            for name in fixture.follow:
                drawing.follow(name)
        return Sample(snapshot.schema.source, drawing.tables())


@dataclass
class _Drawing:
    graph: Graph
    snapshot: Snapshot
    fixture: SampledFixture
    nodes: dict[str, pa.Array] = field(default_factory=dict)
    """The ids of the sample by node type."""

    def draw(self) -> None:
        """Choose nodes of the named types."""
        known = self.snapshot.catalog.node_types
        for name, count in self.fixture.sample.items():
            if name not in known:
                raise SampleTypeError("node", name, tuple(known))
            ids = self._columns(TableKey.node(name), "id")["id"]
            ordered = ids.take(pc.sort_indices(ids))
            # Each type has its own numbers, so that another type in the sample changes none of it.
            numbers = np.random.default_rng([self.fixture.seed, *name.encode()])
            chosen = numbers.choice(len(ordered), min(count, len(ordered)), replace=False)
            self.nodes[name] = ordered.take(pa.array(np.sort(chosen))).combine_chunks()

    def follow(self, name: str) -> None:
        """Add the nodes to which edges of a type lead from the sample."""
        edge_type = self.snapshot.catalog.lookup_edge(name)
        if edge_type is None:
            raise SampleTypeError("edge", name, tuple(self.snapshot.catalog.edge_types))
        ends = self._columns(edge_type.table_key, "src", "dst")
        reached = ends.filter(pc.is_in(ends["src"], self._ids(edge_type.from_type)))["dst"]
        both = pa.chunked_array([*reached.chunks, self._ids(edge_type.to_type)], type=pa.utf8())
        self.nodes[edge_type.to_type] = pc.unique(both)

    def tables(self) -> dict[TableKey, pa.Table]:
        """Return the rows of the sample: its nodes, and all edges between them."""
        catalog = self.snapshot.catalog
        types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
        found: dict[TableKey, pa.Table] = {}
        for entity_type in types:
            key = entity_type.table_key
            if key in self.snapshot.entries:
                found[key] = self._rows(entity_type)
        return {key: table for key, table in found.items() if table.num_rows}

    def _rows(self, entity_type: EntityType) -> pa.Table:
        key = entity_type.table_key
        [(_, batches)] = self.graph.export_batches(types=[key], target=self.snapshot)
        if not self.fixture.sample:
            return pa.Table.from_batches(list(batches))
        kept = [batch.filter(self._keeps(batch, entity_type)) for batch in batches]
        return pa.Table.from_batches(kept)

    def _keeps(self, batch: pa.RecordBatch, entity_type: EntityType) -> pa.Array:
        if not isinstance(entity_type, EdgeType):
            return pc.is_in(batch["id"], self._ids(entity_type.name))
        begins = pc.is_in(batch["src"], self._ids(entity_type.from_type))
        return pc.and_(begins, pc.is_in(batch["dst"], self._ids(entity_type.to_type)))

    def _ids(self, type_name: str) -> pa.Array:
        return self.nodes.get(type_name, pa.array([], pa.utf8()))

    def _columns(self, key: TableKey, *names: str) -> pa.Table:
        [(_, batches)] = self.graph.export_batches(types=[key], columns=names, target=self.snapshot)
        return pa.Table.from_batches(list(batches))
