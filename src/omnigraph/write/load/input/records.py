"""Graph records become columns by type: the envelope, the names inside of `data`, the endpoints.

    {"type": "Station", "data": {…}}
    {"edge": "Feeds", "from": "…", "to": "…", "data": {…}}

Records of one batch are sorted by the set of their member names and by type; everything that can
be said about names is said once for all records that look alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, compress
from operator import itemgetter, not_
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.names import LANCE_COLUMNS, nearest_name
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.convert import convert_values, member_values
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.decode import Decoded
from omnigraph.schema.values.ids import Ids, given_ids
from omnigraph.schema.values.row_errors import ErrorLog, Mask, json_text, no_errors
from omnigraph.schema.values.scalars import text_column
from omnigraph.write.load.input.decode import NOTHING, data_of
from omnigraph.write.load.input.interfaces import LoadSink
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import Violation

Record = dict[str, Any]
_NODE_FIELDS: Final = frozenset({"type", "data"})
_EDGE_FIELDS: Final = frozenset({"edge", "from", "to", "data"})
_PHYSICAL_NAMES: Final = LANCE_COLUMNS | {"_tombstone"}
_STRUCTURAL_NAMES: Final = frozenset({"src", "dst"})
_ENDS: Final = (("src", "from"), ("dst", "to"))


class RecordSorter:
    """Takes decoded records and hands them, as columns, to the rows of their types."""

    def __init__(
        self,
        catalog: Catalog,
        conversion: ConversionMode,
        sink: LoadSink,
    ) -> None:
        self._catalog = catalog
        self._conversion = conversion
        self._is_strict = conversion is ConversionMode.STRICT
        self._sink = sink

    def take(self, decoded: Decoded) -> None:
        """Sort one batch."""
        records, positions = self._objects(decoded)
        by_entity_type: dict[str, tuple[EntityType, list[Sequence[int]]]] = {}
        for shape, alike in _grouped(list(map(tuple, records))):
            for kind, name, places in self._named(records, shape, alike, positions):
                entity_type = self._lookup(kind, name)
                if entity_type is None:
                    message = self._unknown_type(kind, name)
                    refused = _pick(records, places)
                    self._refuse(
                        _pick(positions, places), refused, codes.UNKNOWN_TYPE, "envelope", message
                    )
                else:
                    by_entity_type.setdefault(entity_type.table_key, (entity_type, []))[1].append(
                        places
                    )
        for entity_type, parts in by_entity_type.values():
            places = parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))
            self._add(entity_type, _pick(records, places), _pick(positions, places))

    # -- envelopes --------------------------------------------------------------------------------

    def _objects(self, decoded: Decoded) -> tuple[Sequence[Record], Sequence[int]]:
        values: list[Any] = decoded.values
        if set(map(type, values)) <= {dict}:
            return values, decoded.positions
        records, positions = [], []
        for value, position in zip(values, decoded.positions, strict=True):
            if type(value) is dict:
                records.append(value)
                positions.append(position)
            else:
                message = f"expected a JSON object, got {json_text(value)}"
                self._refuse([position], [value], codes.NOT_AN_OBJECT, "envelope", message)
        return records, positions

    def _named(
        self,
        records: Sequence[Record],
        shape: tuple[str, ...],
        places: Sequence[int],
        positions: Sequence[int],
    ) -> Iterator[tuple[str, str, Sequence[int]]]:
        """Sort records with the same member names by the type that they say they are of."""
        problem = _shape_problem(shape) if self._is_strict else None
        if problem is not None:
            self._refuse(_pick(positions, places), _pick(records, places), *problem)
            return
        for field, kind in (("type", "node"), ("edge", "edge")):
            if field not in shape:
                continue
            named = list(map(itemgetter(field), _pick(records, places)))
            if set(map(type, named)) != {str}:
                is_text = [type(name) is str for name in named]
                others = list(compress(places, map(not_, is_text)))
                places, named = list(compress(places, is_text)), list(compress(named, is_text))
            else:
                others = []
            for name, own in _grouped(named):
                yield kind, name, _pick(places, own)
            places = others
        if places:
            message = "expected 'type' or 'edge' field"
            if self._is_strict:
                field = "type" if "type" in shape else "edge"
                message = f"field '{field}' must be a string"
            refused = _pick(records, places)
            self._refuse(_pick(positions, places), refused, codes.ENVELOPE, "envelope", message)

    def _lookup(self, kind: str, name: str) -> EntityType | None:
        if kind == "node":
            return self._catalog.node_types.get(name)
        return self._catalog.lookup_edge(name)

    def _unknown_type(self, kind: str, name: str) -> str:
        known = self._catalog.node_types if kind == "node" else self._catalog.edge_types
        near = nearest_name(name, known)
        return f"unknown {kind} type '{name}'" + (f"; did you mean '{near}'?" if near else "")

    # -- data -------------------------------------------------------------------------------------

    def _add(
        self, entity_type: EntityType, records: Sequence[Record], positions: Sequence[int]
    ) -> None:
        data = data_of(records)
        if set(map(type, data)) != {dict}:
            records, data, positions = self._with_objects(entity_type, records, data, positions)
        names = set(chain.from_iterable(data))
        if self._is_strict and not names <= entity_type.properties.keys() | {"id"}:
            records, data, positions = self._with_known_names(entity_type, records, data, positions)
        if records:
            self._sink.add(entity_type, self._columns(entity_type, records, data, positions, names))

    def _with_objects(
        self,
        entity_type: EntityType,
        records: Sequence[Record],
        data: list[Any],
        positions: Sequence[int],
    ) -> tuple[Sequence[Record], list[Record], Sequence[int]]:
        if not self._is_strict:
            data = [NOTHING if part is None else part for part in data]
        bad = [n for n, part in enumerate(data) if type(part) is not dict]
        for n in bad:
            message = f"field 'data' must be an object, got {json_text(data[n])}"
            self._refuse(
                [positions[n]],
                [records[n]],
                codes.NOT_AN_OBJECT,
                "envelope",
                message,
                entity_type=entity_type,
            )
        return _leave_out(set(bad), records, data, positions)

    def _with_known_names(
        self,
        entity_type: EntityType,
        records: Sequence[Record],
        data: list[Record],
        positions: Sequence[int],
    ) -> tuple[Sequence[Record], list[Record], Sequence[int]]:
        known = entity_type.properties.keys() | {"id"}
        bad = [n for n, part in enumerate(data) if not part.keys() <= known]
        for n in bad:
            for name in data[n]:
                if name not in known:
                    code, message = _name_problem(entity_type, name)
                    self._refuse(
                        [positions[n]],
                        [records[n]],
                        code,
                        "property",
                        message,
                        entity_type=entity_type,
                        name=name,
                        value=json_text(data[n][name]),
                    )
        return _leave_out(set(bad), records, data, positions)

    def _columns(
        self,
        entity_type: EntityType,
        records: Sequence[Record],
        data: list[Record],
        positions: Sequence[int],
        names: set[str],
    ) -> ColumnBatch:
        mode = self._conversion
        columns = {
            name: convert_values(
                member_values(data, name, default=prop.default), prop.prop_type, name, mode
            )
            for name, prop in entity_type.properties.items()
        }
        is_edge = isinstance(entity_type, EdgeType)
        given = None
        if "id" in names:
            given = given_ids(member_values(data, "id"), is_edge=is_edge, mode=mode)
        ends = (
            {end: self._end(entity_type, records, field) for end, field in _ENDS} if is_edge else {}
        )
        return ColumnBatch(
            columns=columns,
            positions=pa.array(positions, pa.int64()),
            raw=lambda name, row: _raw(records[row], data[row], name),
            record=records.__getitem__,
            given=given,
            ends=ends,
            absent=lambda: _absent(entity_type, data),
        )

    def _end(self, entity_type: EntityType, records: Sequence[Record], field: str) -> Ids:
        try:
            column = pa.array([record[field] for record in records], pa.utf8())
            if not column.null_count:
                return Ids(column, no_errors(len(records)))
        except (KeyError, TypeError, ValueError):
            pass
        return self._checked_end(entity_type, records, field)

    def _checked_end(self, entity_type: EntityType, records: Sequence[Record], field: str) -> Ids:
        values = [record.get(field) for record in records]
        is_text = np.fromiter((type(value) is str for value in values), np.bool_, len(values))
        is_there = np.fromiter((field in record for record in records), np.bool_, len(values))
        log = ErrorLog(len(values))
        if self._is_strict:
            missing = f"edge '{entity_type.name}' requires field '{field}'"
            wrong = f"edge '{entity_type.name}' field '{field}' must be a string"
            log.add_mask(~is_there, value_codes.MISSING, missing)
            log.add_mask(~is_text, value_codes.WRONG_KIND, wrong)
        else:
            log.add_mask(~is_text, value_codes.MISSING, f"edge missing '{field}'")
        texts = [value if type(value) is str else None for value in values]
        column, broken = text_column(texts)
        if broken is not None:
            message = f"edge '{entity_type.name}' field '{field}' is not valid Unicode text"
            log.add_mask(broken, value_codes.INVALID_TEXT, message)
        return Ids(column, log.finish())

    def _refuse(
        self,
        positions: Iterable[int],
        records: Iterable[object],
        code: str,
        rule: str,
        message: str,
        *,
        entity_type: EntityType | None = None,
        name: str | None = None,
        value: str | None = None,
    ) -> None:
        type_name = None if entity_type is None else entity_type.name
        for position, record in zip(positions, records, strict=True):
            violation = Violation(position, type_name, name, value, rule, code, message)
            self._sink.refuse(violation, record)


def _shape_problem(shape: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Return what is wrong with the member names of a record: code, rule and message."""
    if ("type" in shape) == ("edge" in shape):
        return codes.ENVELOPE, "envelope", "expected exactly one of 'type' or 'edge'"
    known = _NODE_FIELDS if "type" in shape else _EDGE_FIELDS
    for name in shape:
        if name not in known:
            message = f"unknown top-level graph batch field '{name}'"
            return codes.UNKNOWN_FIELD, "envelope", message
    return None


_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")


def _grouped(keys: Sequence[_Key]) -> list[tuple[_Key, Sequence[int]]]:
    """Return the distinct keys, and the places of each in order."""
    distinct = list(dict.fromkeys(keys))
    if len(distinct) <= 1:
        return [(key, range(len(keys))) for key in distinct]
    numbers = {key: number for number, key in enumerate(distinct)}
    found = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))
    return [(key, np.flatnonzero(found == number).tolist()) for key, number in numbers.items()]


def _pick(items: Sequence[_Item], places: Sequence[int]) -> Sequence[_Item]:
    if len(places) == len(items):
        return items
    return [items[place] for place in places]


def _leave_out(
    bad: set[int], records: Sequence[Record], data: list[Record], positions: Sequence[int]
) -> tuple[Sequence[Record], list[Record], Sequence[int]]:
    kept = [n for n in range(len(records)) if n not in bad]
    return [records[n] for n in kept], [data[n] for n in kept], [positions[n] for n in kept]


def _name_problem(entity_type: EntityType, name: str) -> tuple[str, str]:
    if name in _PHYSICAL_NAMES:
        message = f"field '{name}' of '{entity_type.table_key}' is reserved physical state"
        return codes.RESERVED_NAME, message
    if isinstance(entity_type, EdgeType) and name in _STRUCTURAL_NAMES:
        message = f"field '{name}' of '{entity_type.table_key}' is reserved structural state"
        return codes.RESERVED_NAME, message
    near = nearest_name(name, entity_type.properties)
    hint = f"; did you mean '{near}'?" if near else ""
    return (
        codes.UNKNOWN_PROPERTY,
        f"unknown input field '{name}' for '{entity_type.table_key}'{hint}",
    )


def _absent(entity_type: EntityType, data: Sequence[Record]) -> dict[str, Mask]:
    """Return the records that have no member for a property."""
    count = len(data)
    found = {
        name: ~np.fromiter((name in one for one in data), np.bool_, count)
        for name in entity_type.properties
    }
    return {name: mask for name, mask in found.items() if mask.any()}


def _raw(record: Record, data: Record, name: str) -> object:
    if name in ("src", "dst"):
        return record.get("from" if name == "src" else "to")
    return data.get(name)
