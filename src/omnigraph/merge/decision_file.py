"""Conflicts as a file to edit, and the edited file as decisions.

One JSON object per line: `{type, id, kind, base, source, target, take}` is written, with the images
of the row on all sides. `{type, id, take}` or `{type, id, data}` is read back; a line whose `take`
is null and that has no `data` decides nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.changes.images import row_images
from omnigraph.errors import InvalidInputError
from omnigraph.merge.resolve import Take
from omnigraph.schema import EdgeType
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.ids import derive_ids
from omnigraph.texts import is_encodable, read_json

if TYPE_CHECKING:
    from omnigraph.changes.table_changes import RowRefs
    from omnigraph.merge.merger import ClashImages
    from omnigraph.schema import Catalog, NodeType
    from omnigraph.store.datasets import DatasetHandle


class DecisionFileError(InvalidInputError):
    """A line of a decision file cannot be used; nothing was merged."""

    code = "OG-DECISIONS"
    hint = (
        "write one object per line: {type, id, take: source|target|base|delete},"
        " or {type, id, data}"
    )

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(f"line {line}: {problem}")


def conflict_lines(found: Sequence[ClashImages]) -> Iterator[str]:
    """Yield a line for every row in conflict, to be edited."""
    for each in found:
        clash, handles = each.clash, each.handles
        sides = {
            "base": _images(handles.base, clash.base, each.owner),
            "source": _images(handles.source, clash.source, each.owner),
            "target": _images(handles.target, clash.target, each.owner),
        }
        for place, entity_id in enumerate(clash.ids.to_pylist()):
            line: dict[str, Any] = {
                "type": each.owner.name,
                "id": entity_id,
                "kind": str(clash.kind),
            }
            line |= {name: images[place] if images else None for name, images in sides.items()}
            yield json.dumps(line | {"take": None}, ensure_ascii=False)


def _images(
    handle: DatasetHandle | None, refs: RowRefs | None, owner: NodeType | EdgeType
) -> list[dict[str, Any]]:
    if handle is None or refs is None:
        return []
    return list(row_images(handle, refs.row_ids, owner))


def read_decisions(
    text: str, catalog: Catalog
) -> tuple[dict[tuple[str, str], Take], dict[str, pa.Table]]:
    """Read decisions: what to take by row, and rows that were written by hand."""
    takes: dict[tuple[str, str], Take] = {}
    rows: dict[str, list[pa.Table]] = defaultdict(list)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        owner, entity_id, shape = _read_line(number, line, catalog)
        key = (owner.table_key, entity_id)
        if key in takes or any(entity_id in t["id"].to_pylist() for t in rows[owner.table_key]):
            raise DecisionFileError(number, f"{owner.name} '{entity_id}' is decided twice")
        if shape.get("data") is not None:
            rows[owner.table_key].append(_row(number, owner, entity_id, shape))
        elif shape.get("take") is not None:
            takes[key] = _take(number, shape["take"])
    return takes, {key: pa.concat_tables(found) for key, found in rows.items() if found}


def _read_line(
    number: int, line: str, catalog: Catalog
) -> tuple[NodeType | EdgeType, str, Mapping[str, Any]]:
    try:
        shape = read_json(line)
    except ValueError as error:
        raise DecisionFileError(number, f"it is not JSON ({error})") from None
    if not isinstance(shape, dict) or not isinstance(shape.get("id"), str):
        raise DecisionFileError(number, "it needs type and id")
    for member in ("id", "from", "to"):
        if not is_encodable(str(shape.get(member))):
            raise DecisionFileError(number, f"{member} holds half of a surrogate pair")
    name = shape.get("type")
    owner = catalog.node_types.get(str(name)) or catalog.edge_types.get(str(name))
    if owner is None:
        raise DecisionFileError(number, f"there is no type '{name}'")
    return owner, shape["id"], shape


def _take(number: int, text: object) -> Take:
    try:
        return Take(str(text))
    except ValueError:
        known = ", ".join(Take)
        raise DecisionFileError(number, f"take is '{text}': expected {known}") from None


def _row(
    number: int, owner: NodeType | EdgeType, entity_id: str, shape: Mapping[str, Any]
) -> pa.Table:
    """Turn the data of a line into a stored row."""
    data = shape["data"]
    if not isinstance(data, dict):
        raise DecisionFileError(number, "data must be an object of properties")
    unknown = data.keys() - owner.properties.keys()
    if unknown:
        raise DecisionFileError(number, f"{owner.name} has no property '{min(unknown)}'")
    columns: dict[str, pa.Array] = {"id": pa.array([entity_id], pa.utf8())}
    if isinstance(owner, EdgeType):
        for column, name in (("src", "from"), ("dst", "to")):
            if not isinstance(shape.get(name), str):
                raise DecisionFileError(number, "an edge needs from and to beside its data")
            columns[column] = pa.array([shape[name]], pa.utf8())
    for name, prop in owner.properties.items():
        converted = convert_values([data.get(name)], prop.prop_type, name)
        problem = converted.row_errors.messages[0].as_py()
        if problem is not None:
            raise DecisionFileError(number, problem)
        columns[name] = converted.column
    _require_key(number, owner, entity_id, columns)
    ordered = [columns[name] for name in owner.arrow_schema.names]
    return pa.Table.from_arrays(ordered, schema=owner.arrow_schema)


def _require_key(
    number: int, owner: NodeType | EdgeType, entity_id: str, columns: Mapping[str, pa.Array]
) -> None:
    """Refuse values of a key that would make another node."""
    if isinstance(owner, EdgeType) or not owner.key:
        return
    members = [(name, columns[name]) for name in owner.key]
    derived = derive_ids(members, type_name=owner.name)
    problem, found = derived.errors.messages[0].as_py(), derived.ids[0].as_py()
    if problem is not None:
        raise DecisionFileError(number, problem)
    if found != entity_id:
        key = ", ".join(owner.key)
        raise DecisionFileError(number, f"{key} makes the id '{found}', not '{entity_id}'")
