"""Conflicts as a file to edit, and the edited file as decisions.

One JSON object per line: `{entity_kind, type, id, kind, message, base, source, target, take}` is
written, with the images of the row on all sides. `{type, id, take}` or `{type, id, data}` is read
back, with `entity_kind` where a node type and an edge type have the name; a line whose `take` is
null and that has no `data` decides nothing. A broken rule of the schema has a line without images:
only a change of the branches settles it.

A conflict of schemas is `{schema, entity_kind, kind, message, ..., take}`, where `schema` is the
identity of what conflicts; `{schema, take}` is read back. Rows are read under the merged schema.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from omnigraph.changes.images import row_images
from omnigraph.changes.table_changes import RowRefs
from omnigraph.errors import InvalidInputError
from omnigraph.merge.conflicts import Conflict, ConflictKind, row_conflict
from omnigraph.merge.plan import Obstacles
from omnigraph.merge.resolve import Take
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.schema.merge.model import SchemaChoices, Side
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.ids import derive_ids
from omnigraph.store.datasets import DatasetHandle
from omnigraph.texts import is_encodable, read_json


class DecisionFileError(InvalidInputError):
    """A line of a decision file cannot be used; nothing was merged."""

    code = "OG-DECISIONS"
    hint = (
        "write one object per line: {{type, id, take: source|target|base|delete}},"
        " or {{type, id, data}}; {{schema, take: source|target}} for a schema"
    )
    template = "line {line}: {problem}"
    line: int
    problem: str


def conflict_lines(found: Obstacles) -> Iterator[str]:
    """Yield a line for every conflict, to be edited."""
    for each in found.clashes:
        clash, handles, key = each.clash, each.handles, each.entity_type.table_key
        is_new = clash.kind is ConflictKind.DIVERGENT_INSERT
        source = handles.new_source if is_new else handles.source
        target = handles.new_target if is_new else handles.target
        sides = {
            "base": _images(handles.base, clash.base, each.entity_type),
            "source": _images(source, clash.source, each.entity_type),
            "target": _images(target, clash.target, each.entity_type),
        }
        for row, entity_id in enumerate(clash.ids.to_pylist()):
            properties = clash.clashing_properties(row)
            images = {name: rows[row] if rows else None for name, rows in sides.items()}
            yield _line(row_conflict(key, clash.kind, entity_id, properties), images)
    for other in found.others:
        yield _line(other, {})


def _line(conflict: Conflict, images: Mapping[str, dict[str, Any] | None]) -> str:
    shape = conflict.to_json()
    if conflict.is_of_schemas:
        return _schema_line(conflict)
    shape = {
        "entity_kind": shape["entity_kind"],
        "type": shape["type_name"],
        "id": shape["entity_id"],
        "kind": shape["kind"],
        "message": shape["message"],
    }
    return json.dumps({**shape, **images, "take": None}, ensure_ascii=False)


def _schema_line(conflict: Conflict) -> str:
    """Return a line about the schema; `schema` names what it decides, where `take` can."""
    shape = conflict.to_json()
    about = {name: shape[name] for name in ("entity_kind", "type_name", "kind", "message")}
    about["type"] = about.pop("type_name")
    details = dict(conflict.details)
    identity = details.pop("identity", None)
    if not conflict.has_choice:
        identity = None
    return json.dumps({"schema": identity, **about, **details, "take": None}, ensure_ascii=False)


def _images(
    handle: DatasetHandle | None, refs: RowRefs | None, entity_type: EntityType
) -> list[dict[str, Any]]:
    if handle is None or refs is None:
        return []
    return list(row_images(handle, refs.row_ids, entity_type))


def read_decisions(
    text: str, catalog: Catalog
) -> tuple[dict[tuple[str, str], Take], dict[str, pa.Table]]:
    """Read decisions: what to take by row, and rows that were written by hand."""
    takes: dict[tuple[str, str], Take] = {}
    rows: dict[str, list[pa.Table]] = defaultdict(list)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        shape = _read_shape(number, line)
        if "schema" in shape or _is_undecided_rule(shape):
            continue
        entity_type, entity_id = _entity_type(number, shape, catalog), _id(number, shape)
        key = (entity_type.table_key, entity_id)
        if key in takes or any(
            entity_id in t["id"].to_pylist() for t in rows[entity_type.table_key]
        ):
            raise DecisionFileError(number, f"{entity_type.name} '{entity_id}' is decided twice")
        if shape.get("data") is not None:
            rows[entity_type.table_key].append(_row(number, entity_type, entity_id, shape))
        elif shape.get("take") is not None:
            takes[key] = _take(number, shape["take"])
    return takes, {key: pa.concat_tables(found) for key, found in rows.items() if found}


def read_schema_choices(text: str, choices: SchemaChoices) -> tuple[SchemaChoices, dict[str, int]]:
    """Read the decisions about schemas, in addition to a choice for all conflicts.

    Also returns the number of the line of each identity.
    """
    chosen: dict[str, Side] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        shape = _read_shape(number, line)
        if "schema" not in shape or shape.get("take") is None:
            continue
        identity, take = shape["schema"], shape["take"]
        if not isinstance(identity, str):
            raise DecisionFileError(number, "this conflict of schemas is not settled by a side")
        if take not in ("source", "target"):
            raise DecisionFileError(number, f"take is '{take}': expected source, target")
        if identity in chosen:
            raise DecisionFileError(number, f"{identity} is decided twice")
        chosen[identity], lines[identity] = take, number
    return replace(choices, by_identity=chosen), lines


def require_schema_lines(lines: Mapping[str, int], allowed: Collection[str], problem: str) -> None:
    """Refuse a decision about something else: it is a mistake, and would decide nothing."""
    for identity, number in lines.items():
        if identity not in allowed:
            raise DecisionFileError(number, f"{identity} {problem}")


def _read_shape(number: int, line: str) -> Mapping[str, Any]:
    try:
        shape = read_json(line)
    except ValueError as error:
        raise DecisionFileError(number, f"it is not JSON ({error})") from None
    if isinstance(shape, dict) and "schema" in shape:
        return shape
    if not isinstance(shape, dict) or "id" not in shape or "type" not in shape:
        raise DecisionFileError(number, "it needs type and id")
    for member in ("id", "from", "to"):
        if not is_encodable(str(shape.get(member))):
            raise DecisionFileError(number, f"{member} holds half of a surrogate pair")
    return shape


def _is_undecided_rule(shape: Mapping[str, Any]) -> bool:
    """Whether a line is about a broken rule that is not one of a row, as it was written."""
    return shape["id"] is None and shape.get("take") is None and shape.get("data") is None


def _id(number: int, shape: Mapping[str, Any]) -> str:
    if not isinstance(shape["id"], str):
        raise DecisionFileError(number, "it needs type and id")
    return shape["id"]


def _entity_type(number: int, shape: Mapping[str, Any], catalog: Catalog) -> EntityType:
    name, kind = str(shape["type"]), shape.get("entity_kind")
    found: list[EntityType] = []
    if kind in (None, "node") and name in catalog.node_types:
        found.append(catalog.node_types[name])
    if kind in (None, "edge") and name in catalog.edge_types:
        found.append(catalog.edge_types[name])
    if not found:
        what = "type" if kind is None else f"{kind} type"
        raise DecisionFileError(number, f"there is no {what} '{name}'")
    if len(found) > 1:
        problem = f"a node type and an edge type are called '{name}': give entity_kind too"
        raise DecisionFileError(number, problem)
    return found[0]


def _take(number: int, text: object) -> Take:
    try:
        return Take(str(text))
    except ValueError:
        known = ", ".join(Take)
        raise DecisionFileError(number, f"take is '{text}': expected {known}") from None


def _row(
    number: int, entity_type: EntityType, entity_id: str, shape: Mapping[str, Any]
) -> pa.Table:
    """Turn the data of a line into a stored row."""
    data = shape["data"]
    if not isinstance(data, dict):
        raise DecisionFileError(number, "data must be an object of properties")
    unknown = data.keys() - entity_type.properties.keys()
    if unknown:
        raise DecisionFileError(number, f"{entity_type.name} has no property '{min(unknown)}'")
    columns: dict[str, pa.Array] = {"id": pa.array([entity_id], pa.utf8())}
    if isinstance(entity_type, EdgeType):
        for column, name in (("src", "from"), ("dst", "to")):
            if not isinstance(shape.get(name), str):
                raise DecisionFileError(number, "an edge needs from and to beside its data")
            columns[column] = pa.array([shape[name]], pa.utf8())
    for name, prop in entity_type.properties.items():
        converted = convert_values([data.get(name)], prop.prop_type, name)
        problem = converted.row_errors.messages[0].as_py()
        if problem is not None:
            raise DecisionFileError(number, problem)
        columns[name] = converted.column
    _require_key(number, entity_type, entity_id, columns)
    ordered = [columns[name] for name in entity_type.arrow_schema.names]
    return pa.Table.from_arrays(ordered, schema=entity_type.arrow_schema)


def _require_key(
    number: int, entity_type: EntityType, entity_id: str, columns: Mapping[str, pa.Array]
) -> None:
    """Refuse key values that do not spell the id."""
    if not entity_type.key:
        return
    members = [(name, columns[name]) for name in entity_type.key]
    derived = derive_ids(members, type_name=entity_type.name)
    problem, found = derived.errors.messages[0].as_py(), derived.ids[0].as_py()
    if problem is not None:
        raise DecisionFileError(number, problem)
    if found != entity_id:
        key = ", ".join(entity_type.key)
        raise DecisionFileError(number, f"{key} makes the id '{found}', not '{entity_id}'")
