"""Tables by type: files, tables in memory and lists of objects become columns of rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias, cast

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.names import nearest_name
from omnigraph.schema import Catalog, EntityType
from omnigraph.write.load.formats.description import (
    file_source,
    is_description,
    is_objects,
)
from omnigraph.write.load.formats.frames import ArrowStream, frame_batches
from omnigraph.write.load.formats.json_rows import RowReader, object_batches
from omnigraph.write.load.formats.kinds import Format
from omnigraph.write.load.formats.rows import RowFile, files_of, format_of, position_unit
from omnigraph.write.load.input.interfaces import LoadSink, TypeSink
from omnigraph.write.load.input.tables import column_batch, column_problems, empty_rows
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import Violation

TableInput: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream"
    " | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
    " | Sequence[Mapping[str, object]] | Mapping[str, object]"
)


@dataclass(frozen=True)
class TableSource:
    """Tables of nodes and edges, by type."""

    nodes: Mapping[str, TableInput]
    edges: Mapping[str, TableInput]
    form: Format | None = None
    """The format of files whose description names none."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    place: str = "row"
    last_wins_for_unkeyed_ids: bool = False

    def read(self, catalog: Catalog, sink: TypeSink) -> None:
        """Hand all tables over, nodes first, by name."""
        found: list[tuple[str, EntityType | None]] = [
            *((name, catalog.node_types.get(name)) for name in sorted(self.nodes)),
            *((name, catalog.lookup_edge(name)) for name in sorted(self.edges)),
        ]
        # Two names may mean one type of edges.
        waiting = Counter(kind.table_key for _, kind in found if kind is not None)
        for number, (name, entity_type) in enumerate(found):
            is_node = number < len(self.nodes)
            if entity_type is None:
                known = catalog.node_types if is_node else catalog.edge_types
                sink.refuse(_unknown_type("node" if is_node else "edge", name, known), None)
                continue
            self._read(entity_type, (self.nodes if is_node else self.edges)[name], catalog, sink)
            waiting[entity_type.table_key] -= 1
            if not waiting[entity_type.table_key]:
                sink.end_type(entity_type)

    def _read(
        self, entity_type: EntityType, table: TableInput, catalog: Catalog, sink: LoadSink
    ) -> None:
        if is_objects(table):
            objects = cast("Sequence[Mapping[str, object]]", table)
            _hand_over(entity_type, _objects(entity_type, objects, catalog, sink), sink)
        elif is_description(table):
            self._read_files(entity_type, table, catalog, sink)
        else:
            _hand_over(entity_type, _frame(entity_type, table, sink), sink)

    def _read_files(
        self, entity_type: EntityType, table: TableInput, catalog: Catalog, sink: LoadSink
    ) -> None:
        source = file_source(entity_type, table, self.form)
        for file in files_of(source, self.storage_options):
            form = format_of(file, source, self.storage_options)
            opened = RowFile(entity_type, file, source, form, self.storage_options)
            first = sink.begin(file.path, position_unit(form))
            rows = opened.rows(catalog, first, sink.refuse)
            if not _hand_over(entity_type, rows, sink):
                return


def _hand_over(entity_type: EntityType, batches: Iterator[ColumnBatch], sink: LoadSink) -> bool:
    """Hand rows over; false if the columns are not those of the type."""
    has_rows = False
    for batch in batches:
        has_rows = True
        sink.add(entity_type, batch)
        sink.end_batch()
    sink.end_batch()
    return has_rows


def _objects(
    entity_type: EntityType,
    objects: Sequence[Mapping[str, object]],
    catalog: Catalog,
    sink: LoadSink,
) -> Iterator[ColumnBatch]:
    reader = RowReader(entity_type, catalog, sink.refuse, source="the list", columns={})
    first = sink.begin(None, "record")
    yield column_batch(entity_type, empty_rows(entity_type), first)
    for decoded in object_batches(objects, first):
        yield from reader.records(decoded)


def _frame(entity_type: EntityType, table: Any, sink: LoadSink) -> Iterator[ColumnBatch]:
    position = sink.begin(None)
    for batch in frame_batches(table):
        problems = column_problems(entity_type, batch.schema.names)
        for problem in problems:
            sink.refuse(problem, None)
        if problems:
            return
        yield column_batch(entity_type, batch, position)
        position += batch.num_rows


def table_source(
    tables: Mapping[str, object],
    catalog: Catalog,
    *,
    form: Format | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> TableSource:
    """Sort tables by what their names are; `node:` or `edge:` before a name says which is meant."""
    nodes: dict[str, TableInput] = {}
    edges: dict[str, TableInput] = {}
    for name, table in tables.items():
        kind, _, plain = name.rpartition(":")
        is_node = kind == "node" or (kind == "" and _is_meant_as_node(plain, catalog))
        # Unsupported inputs are rejected later, with the name of their type.
        (nodes if is_node else edges)[plain] = cast("TableInput", table)
    return TableSource(nodes, edges, form, dict(storage_options or {}))


def _is_meant_as_node(name: str, catalog: Catalog) -> bool:
    """Whether a table is one of nodes; a name that nothing has is the kind of the nearest one."""
    if name in catalog.node_types:
        return True
    if catalog.lookup_edge(name) is not None:
        return False
    has_near_node = nearest_name(name, catalog.node_types) is not None
    return has_near_node or nearest_name(name, catalog.edge_types) is None


def _unknown_type(kind: str, name: str, known: Mapping[str, object]) -> Violation:
    near = nearest_name(name, known)
    message = f"unknown {kind} type '{name}'" + (f"; did you mean '{near}'?" if near else "")
    return Violation(None, name, None, None, "envelope", codes.UNKNOWN_TYPE, message)
