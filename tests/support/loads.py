"""Loads as text: graphs in, outcomes out."""

from __future__ import annotations

import json
import re

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.schema import EdgeType, NodeType
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ScanRequest
from omnigraph.values import Scalar
from omnigraph.write.rules.violations import KeyConflictError, ValidationError

_MADE_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def graph_lines(graph: Graph, branch: str | None = None) -> list[str]:
    """Return one line per entity, sorted; ids that were made are `*`, nulls are left out."""
    snapshot = (
        graph.snapshot() if branch is None else Graph.open(graph.uri, branch=branch).snapshot()
    )
    catalog = snapshot.catalog
    owners: list[NodeType | EdgeType] = [
        *catalog.node_types.values(),
        *catalog.edge_types.values(),
    ]
    lines = []
    for owner in owners:
        assert snapshot.entry(owner.table_key).row_count == snapshot.open(owner.table_key).count()
        lines += _rows(owner, snapshot.open(owner.table_key))
    return sorted(lines)


def _rows(owner: NodeType | EdgeType, handle: DatasetHandle) -> list[str]:
    rows = handle.scan(ScanRequest(blobs_as_bytes=True)).read_all().combine_chunks()
    values = {}
    for name, prop in owner.properties.items():
        column = rows[name].combine_chunks()
        if prop.prop_type.scalar is Scalar.BLOB:
            values[name] = [None if one is None else one.decode() for one in column.to_pylist()]
        else:
            values[name] = to_json_values(column, prop.prop_type)
    lines = []
    for row, identity in enumerate(rows["id"].to_pylist()):
        shown = {name: column[row] for name, column in values.items() if column[row] is not None}
        name = "*" if _MADE_ID.fullmatch(identity) else identity
        ends = f" {rows['src'][row]}->{rows['dst'][row]}" if isinstance(owner, EdgeType) else ""
        text = json.dumps(shown, ensure_ascii=False)
        lines.append(f"{owner.name} {name}{ends} {text}")
    return lines


def problem_lines(error: OmnigraphError) -> list[str]:
    """Return one line per violation, or one for any other error."""
    if isinstance(error, KeyConflictError):
        assert error.total == len(error.lines)
        return [f"key_conflict {error.key_conflict}", *error.lines]
    if not isinstance(error, ValidationError):
        return [f"{error.code} {error}"]
    assert error.total == sum(error.totals.values())
    assert error.total == len(error.violations)
    return [
        f"{found.rule} {found.code} [{found.type}.{found.property} {found.value}]"
        f" {found.text(error.place)}"
        for found in error.violations
    ]
