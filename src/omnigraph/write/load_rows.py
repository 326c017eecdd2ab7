"""Converted columns become rows of one type: ids are given, problems are collected.

Everything here looks at single rows only, batch by batch; rows with a problem are left out of what
is kept, and the load fails at the end with all problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema import EdgeType, NodeType
from omnigraph.schema.values.converted import ConversionMode, Converted
from omnigraph.schema.values.ids import AcceptedIds, Ids, accept_ids, derive_ids, new_ulids
from omnigraph.schema.values.row_errors import Mask, RowErrors, json_text
from omnigraph.write import codes
from omnigraph.write.columns import to_mask
from omnigraph.write.validate_values import TYPE_RULE, add_row_errors
from omnigraph.write.violations import Violation, ViolationLog

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.write.external_blobs import ExternalBlobs
    from omnigraph.write.spool import SpoolRoom

Raw = Callable[[str, int], object]
"""Returns the value of a property in a row, as the input gave it."""

_EXTERNAL_DENIED: Final = "new external Blob URI ingress is denied for this graph"


@dataclass(frozen=True)
class LoadSettings:
    """What holds for all rows of a load."""

    conversion: ConversionMode
    clock: Clock
    external_blobs: ExternalBlobs


@dataclass(frozen=True)
class ColumnBatch:
    """Converted columns of some rows of one type.

    `given` holds the ids of the input, if it has any. `ends` has the columns `src` and `dst` of
    edges. `positions` says where each row came from.
    """

    columns: Mapping[str, Converted]
    positions: pa.Array
    raw: Raw
    given: Ids | None = None
    ends: Mapping[str, Ids] = field(default_factory=dict)


class TypeRows:
    """Gathers the rows of one type."""

    def __init__(
        self,
        owner: NodeType | EdgeType,
        settings: LoadSettings,
        room: SpoolRoom,
        log: ViolationLog,
    ) -> None:
        self.owner = owner
        self.records_read = 0
        self.ids_are_new = not (isinstance(owner, NodeType) and owner.key)
        self._settings = settings
        self._log = log
        self._spool = room.spool(owner.arrow_schema)
        self._positions: list[pa.Array] = []
        self._spellings: list[tuple[pa.Array, pa.Array]] = []

    def add(self, batch: ColumnBatch) -> None:
        """Add the good rows of a batch, and note what is wrong with the others."""
        row_count = len(batch.positions)
        self.records_read += row_count
        work = _Work(self.owner.name, batch, np.zeros(row_count, np.bool_))
        for name, converted in batch.columns.items():
            work.note(converted.row_errors, name)
        for name in self.owner.blob_properties:
            self._refuse_external(batch.columns[name].column, name, work)
        for end, ids in batch.ends.items():
            work.note(ids.errors, end, rule="endpoint", code=codes.BAD_ENDPOINT)
        ids = self._ids(batch, work)
        self._log.absorb(work.log)
        self._keep(ids, batch, work.bad)

    def finish(self) -> tuple[pa.Table, pa.Array]:
        """Return all good rows and their positions."""
        positions = pa.chunked_array(self._positions, pa.int64()).combine_chunks()
        return self._spool.finish(), positions

    @property
    def spellings(self) -> tuple[pa.Array, pa.Array] | None:
        """Ids that the input spelled in another way, and the canonical ones; None without any."""
        if not self._spellings:
            return None
        given, canonical = zip(*self._spellings, strict=True)
        return pa.concat_arrays(given), pa.concat_arrays(canonical)

    # -- ids --------------------------------------------------------------------------------------

    def _ids(self, batch: ColumnBatch, work: _Work) -> pa.Array:
        if batch.given is not None:
            work.note(batch.given.errors, "id", rule="id")
        if isinstance(self.owner, NodeType) and self.owner.key:
            return self._key_ids(self.owner, batch, work)
        return self._free_ids(batch, len(work.bad))

    def _key_ids(self, node: NodeType, batch: ColumnBatch, work: _Work) -> pa.Array:
        members = [(name, batch.columns[name].column) for name in node.key]
        derived = derive_ids(members, type_name=node.name)
        work.note(derived.errors, ", ".join(node.key), rule="id")
        if batch.given is None:
            return derived.ids
        accepted = accept_ids(
            batch.given.ids,
            derived.ids,
            members,
            type_name=node.name,
            mode=self._settings.conversion,
        )
        work.note(accepted.errors, "id", rule="id")
        self._remember_spellings(accepted)
        return accepted.ids

    def _free_ids(self, batch: ColumnBatch, row_count: int) -> pa.Array:
        clock = self._settings.clock
        if batch.given is None or batch.given.ids.null_count == row_count:
            return new_ulids(clock, row_count)
        self.ids_are_new = False
        given = batch.given.ids
        if not given.null_count:
            return given
        return pc.replace_with_mask(given, given.is_null(), new_ulids(clock, given.null_count))

    def _remember_spellings(self, accepted: AcceptedIds) -> None:
        used = pc.and_(accepted.spellings.is_valid(), accepted.ids.is_valid())
        if pc.any(used).as_py():
            self._spellings.append((accepted.spellings.filter(used), accepted.ids.filter(used)))

    # -- rows -------------------------------------------------------------------------------------

    def _keep(self, ids: pa.Array, batch: ColumnBatch, bad: Mask) -> None:
        ends = [batch.ends[end].ids for end in ("src", "dst") if end in batch.ends]
        properties = [self._stored(name, batch, bad) for name in self.owner.properties]
        positions = batch.positions
        arrays = [ids, *ends, *properties]
        if bad.any():
            good = pa.array(~bad)
            arrays = [array.filter(good) for array in arrays]
            positions = positions.filter(good)
        schema = self.owner.arrow_schema
        self._spool.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self._positions.append(positions)

    def _stored(self, name: str, batch: ColumnBatch, bad: Mask) -> pa.Array:
        column = batch.columns[name].column
        if name in self.owner.blob_properties:
            return self._settings.external_blobs.copied(column, ~bad)
        return column

    def _refuse_external(self, column: pa.Array, name: str, work: _Work) -> None:
        uris = pc.struct_field(column, "uri")
        if uris.null_count == len(uris):
            return
        denied = self._settings.external_blobs.denied(column)
        rows = np.flatnonzero(denied & ~work.bad)
        work.bad[rows] = True
        shown = rows[: work.log.room].tolist()
        work.log.count("blob", len(rows) - len(shown))
        for row in shown:
            work.log.add(
                Violation(
                    position=batch_position(work.batch, row),
                    type=self.owner.name,
                    property=name,
                    value=json_text(uris[row].as_py()),
                    rule="blob",
                    code=codes.EXTERNAL_BLOB,
                    message=f"property '{name}': {_EXTERNAL_DENIED}",
                )
            )


def batch_position(batch: ColumnBatch, row: int) -> int:
    """Return where a row came from."""
    position: int = batch.positions[row].as_py()
    return position


@dataclass(frozen=True)
class _Work:
    """What was found in one batch; `bad` marks the rows that have a problem."""

    type_name: str
    batch: ColumnBatch
    bad: Mask
    log: ViolationLog = field(default_factory=ViolationLog)

    def note(
        self, errors: RowErrors, name: str, *, rule: str = TYPE_RULE, code: str | None = None
    ) -> None:
        """Take the problems of one column; what only follows from another one is left out."""
        if errors.is_clean:
            return
        add_row_errors(
            self.log,
            errors,
            type_name=self.type_name,
            name=name,
            rule=rule,
            positions=self.batch.positions,
            value_at=lambda row: _shown(self.batch.raw(name, row)),
            code=code,
        )
        np.logical_or(self.bad, to_mask(errors.messages.is_valid()), out=self.bad)


def _shown(value: object) -> str | None:
    return None if value is None else json_text(value)
