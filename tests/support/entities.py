"""Whole small graphs as text: records in, one line per entity out.

Records have the form of a bulk load and are stored without the write room, so that its tests do not
test themselves. Lines are sorted and read well in a difference:

    Crew ann rank=5
    Mentors ann->bo since=2020-01-01
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa

from omnigraph.graph import Graph
from omnigraph.schema import Catalog, EdgeType, NodeType
from omnigraph.schema.values.blobs import BASE64_PREFIX
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.ids import derive_ids, new_ulids
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.store.records import ScanRequest
from omnigraph.values import Scalar
from support.places import repository_of
from support.writer import append

Record = Mapping[str, object]


def store_records(graph: Graph, text: str) -> None:
    """Store JSON Lines of a bulk load as one commit; an edge may give its id in `data`."""
    records: dict[str, list[Record]] = defaultdict(list)
    for line in filter(None, text.split("\n")):
        record = json.loads(line)
        key = f"node:{record['type']}" if "type" in record else f"edge:{record['edge']}"
        records[key].append(record)
    if not records:
        return
    catalog = graph.snapshot().catalog
    owners = {owner.table_key: owner for owner in _owners(catalog)}
    tables = {key: _rows(graph, owners[key], found) for key, found in records.items()}
    append(repository_of(graph), tables, branch=graph.branch)


def entities(graph: Graph) -> list[str]:
    """Return one line per entity of the bound branch, sorted; nulls are left out."""
    snapshot = graph.snapshot()
    lines = []
    for owner in _owners(snapshot.catalog):
        request = ScanRequest(blobs_as_bytes=True)
        rows = snapshot.open(owner.table_key).scan(request).read_all().combine_chunks()
        lines += _lines(owner, rows)
    return sorted(lines)


def _owners(catalog: Catalog) -> list[NodeType | EdgeType]:
    return [*catalog.node_types.values(), *catalog.edge_types.values()]


def _data(record: Record) -> dict[str, object]:
    data = record.get("data", {})
    assert isinstance(data, dict)
    return data


def _rows(graph: Graph, owner: NodeType | EdgeType, records: list[Record]) -> pa.Table:
    data = [_data(record) for record in records]
    columns = {
        name: convert_values([one.get(name) for one in data], prop.prop_type, name).column
        for name, prop in owner.properties.items()
    }
    if isinstance(owner, EdgeType):
        columns["src"] = pa.array([record["from"] for record in records], pa.utf8())
        columns["dst"] = pa.array([record["to"] for record in records], pa.utf8())
    if owner.key:
        members = [(member, columns[member]) for member in owner.key]
        columns["id"] = derive_ids(members, type_name=owner.name).ids
    else:
        fresh = new_ulids(repository_of(graph).clock, len(records)).to_pylist()
        given = [one.get("id") for one in data]
        ids = [wanted or new for wanted, new in zip(given, fresh, strict=True)]
        columns["id"] = pa.array(ids, pa.utf8())
    return pa.table([columns[name] for name in owner.arrow_schema.names], schema=owner.arrow_schema)


def _lines(owner: NodeType | EdgeType, rows: pa.Table) -> list[str]:
    values = {name: _values(owner, name, rows) for name in owner.properties}
    lines = []
    for row in range(rows.num_rows):
        shown = "".join(
            f" {name}={column[row] if isinstance(column[row], str) else json.dumps(column[row])}"
            for name, column in values.items()
            if column[row] is not None and name not in owner.key
        )
        lines.append(f"{owner.name} {_name(owner, rows, row)}{shown}")
    return lines


def _name(owner: NodeType | EdgeType, rows: pa.Table, row: int) -> str:
    if owner.key:
        return str(rows["id"][row])
    return f"{rows['src'][row]}->{rows['dst'][row]}" if isinstance(owner, EdgeType) else "*"


def _values(owner: NodeType | EdgeType, name: str, rows: pa.Table) -> list[object]:
    column = rows[name]
    flat = column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    if owner.properties[name].prop_type.scalar is Scalar.BLOB:
        return [None if one is None else f"{BASE64_PREFIX}{one!r}" for one in flat.to_pylist()]
    return to_json_values(flat, owner.properties[name].prop_type)
