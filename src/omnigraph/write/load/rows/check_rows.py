"""The rules of single rows: converted columns of one type in, good rows and problems out.

`check_rows` is a function from values to values. It looks at nothing but the batch that it gets, so
it runs unchanged in this process and in tasks elsewhere: `RowRules` and `CheckedRows` can be
pickled.

1. A row with a problem is never among the good ones; all problems of a row are reported.
2. A row whose id the input does not give has its id made here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.converted import ConversionMode, Converted
from omnigraph.schema.values.ids import AcceptedIds, Ids, accept_ids, derive_ids, new_ulids
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import Mask, RowErrors, json_text
from omnigraph.search.embedding.columns import has_text
from omnigraph.texts import redacted
from omnigraph.write.load.rows.absent import NOTHING_ABSENT, AbsentMasks, chosen, masks_of
from omnigraph.write.rules import codes
from omnigraph.write.rules.endpoints import ENDPOINT_RULE
from omnigraph.write.rules.row_errors import TYPE_RULE, add_row_errors, values_of
from omnigraph.write.rules.values import value_rules
from omnigraph.write.rules.violations import VIOLATIONS_MAX, Violation, ViolationLog
from omnigraph.write.stage.columns import to_mask
from omnigraph.write.stage.external_blobs import ExternalBlobs

Raw = Callable[[str, int], object]
"""Returns the value of a property in a row, as the input gave it."""

_EXTERNAL_DENIED: Final = "new external Blob URI ingress is denied for this graph"


@dataclass(frozen=True)
class ColumnBatch:
    """Converted columns of some rows of one type.

    `given` holds the ids of the input, if it has any. `ends` has the columns `src` and `dst` of
    edges. `positions` says where each row came from. `record` returns a row as the input gave it.
    """

    columns: Mapping[str, Converted]
    positions: pa.Array
    raw: Raw
    record: Callable[[int], object]
    given: Ids | None = None
    ends: Mapping[str, Ids] = field(default_factory=dict)
    absent: Callable[[], AbsentMasks] = field(default=lambda: NOTHING_ABSENT)
    """Returns which rows do not name a property; called only where that matters."""
    is_columnar: bool = False
    """Whether the rows are of a table, where a cell that says nothing is null."""


@dataclass(frozen=True)
class RowRules:
    """What rows of one type have to be like."""

    entity_type: EntityType
    conversion: ConversionMode
    external_blobs: ExternalBlobs
    copies_external: bool = True
    """Whether the bytes of external blobs become the graph's own, or references stay."""
    violations_max: int = VIOLATIONS_MAX
    """So many violations of one batch are kept in full."""
    filled: frozenset[str] = frozenset()
    """Required vectors that may be missing where the row has the text that they are made from."""
    keeps_absent: bool = False
    """Whether a property that a row does not name stays as it is stored."""
    null_cells_are_absent: bool = False
    """Whether a null of a table means that the row does not name the property."""


@dataclass(frozen=True)
class CheckedRows:
    """What has become of one batch.

    `rows` are the good ones, with the stored columns in stored order, and `positions` theirs. `bad`
    marks the others among the rows of the batch. `spellings` are ids that the input spelled in
    another way, and the canonical ones. `made` marks the rows whose id was made here, where some
    have one and others do not.
    """

    rows: pa.RecordBatch
    positions: pa.Array
    bad: Mask
    log: ViolationLog
    ids_are_new: bool
    spellings: tuple[pa.Array, pa.Array] | None = None
    absent: AbsentMasks = field(default_factory=dict)
    """The properties that good rows do not name, where stored rows keep those."""
    made: Mask | None = None

    @property
    def is_made(self) -> Mask:
        """Which rows have an id that was made here."""
        if self.made is not None:
            return self.made
        return np.full(self.rows.num_rows, self.ids_are_new)

    @property
    def made_count(self) -> int:
        """How many rows have an id that was made here."""
        return int(np.count_nonzero(self.is_made))


def check_rows(rules: RowRules, batch: ColumnBatch, clock: Clock) -> CheckedRows:
    """Check every rule of single rows, give ids, and keep what is good."""
    entity_type = rules.entity_type
    row_count = len(batch.positions)
    if rules.null_cells_are_absent and batch.is_columnar:
        batch = _null_cells_absent(entity_type, batch)
    absent = _kept(rules, batch)
    work = _Work(
        entity_type, batch, np.zeros(row_count, np.bool_), ViolationLog(rules.violations_max)
    )
    for name, converted in batch.columns.items():
        errors = _unexcused(rules, batch, name, converted.row_errors)
        work.note(_cleared(errors, _is_missing(errors), absent.get(name)), name)
    for name in entity_type.blob_properties:
        _refuse_external(rules, batch.columns[name].column, name, work)
    for end, ids in batch.ends.items():
        work.note(ids.errors, end, rule=ENDPOINT_RULE, code=codes.BAD_ENDPOINT)
    given = _ids(rules, batch, work, clock)
    ends = [batch.ends[end].ids for end in ("src", "dst") if end in batch.ends]
    properties = [batch.columns[name].column for name in entity_type.properties]
    arrays = [given.ids, *ends, *properties]
    for rule in value_rules(entity_type):
        column = batch.columns[rule.property].column
        work.note(rule.check(column), rule.property, rule=rule.name, value_at=values_of(column))
    positions = batch.positions
    if work.bad.any():
        good = pa.array(~work.bad)
        arrays = [array.filter(good) for array in arrays]
        positions = positions.filter(good)
        absent = masks_of(absent, ~work.bad)
    rows = pa.RecordBatch.from_arrays(_blobs_copied(rules, arrays), schema=entity_type.arrow_schema)
    made = None if given.made is None else given.made[~work.bad]
    return CheckedRows(
        rows, positions, work.bad, work.log, given.are_new, given.spellings, absent, made
    )


# -- properties that rows do not name -------------------------------------------------------------


def _kept(rules: RowRules, batch: ColumnBatch) -> AbsentMasks:
    """Return what rows do not name and stored rows of their ids would keep."""
    if not rules.keeps_absent:
        return NOTHING_ABSENT
    may_be_stored = _may_be_stored(rules.entity_type, batch)
    if not may_be_stored.any():
        return NOTHING_ABSENT
    key = rules.entity_type.key
    found = {name: mask & may_be_stored for name, mask in batch.absent().items() if name not in key}
    return {name: mask for name, mask in found.items() if mask.any()}


def _may_be_stored(entity_type: EntityType, batch: ColumnBatch) -> Mask:
    """Return the rows that may stand for stored ones: by key, by id, or by a tuple with ends."""
    row_count = len(batch.positions)
    if entity_type.key or _has_end_group(entity_type):
        return np.ones(row_count, np.bool_)
    return np.zeros(row_count, np.bool_) if batch.given is None else valid_mask(batch.given.ids)


def _has_end_group(entity_type: EntityType) -> bool:
    return any({"src", "dst"} <= set(members) for members in entity_type.unique_constraints)


def _null_cells_absent(entity_type: EntityType, batch: ColumnBatch) -> ColumnBatch:
    """Take nulls for cells that name nothing; they get defaults, as columns that are not there."""
    absent = dict(batch.absent())
    columns = dict(batch.columns)
    for name, converted in batch.columns.items():
        if name in absent:
            continue
        errors = converted.row_errors
        empty = ~valid_mask(converted.column)
        if not errors.is_clean:
            empty &= _is_missing(errors) | ~valid_mask(errors.messages)
        if not empty.any():
            continue
        absent[name] = empty
        prop = entity_type.properties[name]
        if prop.default is not None:
            count = len(converted.column)
            filled = convert_values([prop.default] * count, prop.prop_type, name)
            left = _cleared(errors, empty, empty)
            column = chosen(empty, filled.column, converted.column)
            columns[name] = replace(
                converted, column=column, errors=left.messages, codes=left.codes
            )
    return replace(batch, columns=columns, absent=lambda: absent)


def _is_missing(errors: RowErrors) -> Mask:
    """Return the rows that lack a required value."""
    if errors.is_clean:
        return np.zeros(len(errors.messages), np.bool_)
    return to_mask(pc.equal(errors.codes.cast(pa.utf8()), value_codes.MISSING).fill_null(False))


def _cleared(errors: RowErrors, which: Mask, among: Mask | None) -> RowErrors:
    """Leave out the problems of some rows."""
    if among is None or errors.is_clean or not (which & among).any():
        return errors
    cleared = pa.array(which & among)
    codes_left = pc.if_else(cleared, None, errors.codes.cast(pa.utf8()))
    return RowErrors(pc.if_else(cleared, None, errors.messages), codes_left.dictionary_encode())


def _unexcused(rules: RowRules, batch: ColumnBatch, name: str, errors: RowErrors) -> RowErrors:
    """Leave out that a vector is missing where it can be made."""
    if errors.is_clean or name not in rules.filled or not isinstance(rules.entity_type, NodeType):
        return errors
    texts = batch.columns[rules.entity_type.embed_sources[name].source].column
    return _cleared(errors, _is_missing(errors), has_text(texts))


# -- ids ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GivenIds:
    ids: pa.Array
    are_new: bool = False
    spellings: tuple[pa.Array, pa.Array] | None = None
    made: Mask | None = None


def _ids(rules: RowRules, batch: ColumnBatch, work: _Work, clock: Clock) -> _GivenIds:
    if batch.given is not None:
        work.note(batch.given.errors, "id", rule="id")
    entity_type = rules.entity_type
    if entity_type.key:
        return _key_ids(entity_type, rules.conversion, batch, work)
    row_count = len(work.bad)
    if batch.given is None or batch.given.ids.null_count == row_count:
        return _GivenIds(new_ulids(clock, row_count), are_new=True)
    given = batch.given.ids
    if not given.null_count:
        return _GivenIds(given)
    is_made = given.is_null()
    made = new_ulids(clock, given.null_count)
    return _GivenIds(pc.replace_with_mask(given, is_made, made), made=to_mask(is_made))


def _key_ids(
    keyed: EntityType, conversion: ConversionMode, batch: ColumnBatch, work: _Work
) -> _GivenIds:
    members = [(name, _member(batch, name)) for name in keyed.key]
    derived = derive_ids(members, type_name=keyed.name)
    work.note(derived.errors, ", ".join(keyed.key), rule="id")
    if batch.given is None:
        return _GivenIds(derived.ids)
    # Only nodes have ids that edges spell in another way.
    mode = conversion if isinstance(keyed, NodeType) else ConversionMode.STRICT
    accepted = accept_ids(batch.given.ids, derived.ids, members, type_name=keyed.name, mode=mode)
    work.note(accepted.errors, "id", rule="id")
    return _GivenIds(accepted.ids, spellings=_other_spellings(accepted))


def _member(batch: ColumnBatch, name: str) -> pa.Array:
    """Return a member of a key: an end of an edge, or a property."""
    return batch.ends[name].ids if name in batch.ends else batch.columns[name].column


def _other_spellings(accepted: AcceptedIds) -> tuple[pa.Array, pa.Array] | None:
    used = pc.and_(accepted.spellings.is_valid(), accepted.ids.is_valid())
    if not pc.any(used).as_py():
        return None
    return accepted.spellings.filter(used), accepted.ids.filter(used)


# -- blobs ----------------------------------------------------------------------------------------


def _blobs_copied(rules: RowRules, arrays: list[pa.Array]) -> list[pa.Array]:
    """Read the external blobs of good rows, where they are to be copied."""
    if not rules.copies_external or not rules.entity_type.blob_properties:
        return arrays
    copied = list(arrays)
    for name in rules.entity_type.blob_properties:
        place = rules.entity_type.arrow_schema.get_field_index(name)
        everywhere = np.ones(len(arrays[place]), np.bool_)
        copied[place] = rules.external_blobs.copied(arrays[place], everywhere)
    return copied


def _refuse_external(rules: RowRules, column: pa.Array, name: str, work: _Work) -> None:
    uris = pc.struct_field(column, "uri")
    if uris.null_count == len(uris):
        return
    denied = rules.external_blobs.denied(column)
    rows = np.flatnonzero(denied & ~work.bad)
    work.bad[rows] = True
    shown = rows[: work.log.room].tolist()
    work.log.count("blob", len(rows) - len(shown))
    for row in shown:
        work.log.add(
            Violation(
                position=work.batch.positions[row].as_py(),
                type=rules.entity_type.name,
                property=name,
                value=redacted(json_text(uris[row].as_py())),
                rule="blob",
                code=codes.EXTERNAL_BLOB,
                message=f"property '{name}': {_EXTERNAL_DENIED}",
                table_key=rules.entity_type.table_key,
            )
        )


@dataclass(frozen=True)
class _Work:
    """What was found in one batch; `bad` marks the rows that have a problem."""

    entity_type: EntityType
    batch: ColumnBatch
    bad: Mask
    log: ViolationLog

    def note(
        self,
        errors: RowErrors,
        name: str,
        *,
        rule: str = TYPE_RULE,
        code: str | None = None,
        value_at: Callable[[int], str | None] | None = None,
    ) -> None:
        """Take the problems of one column."""
        if errors.is_clean:
            return
        add_row_errors(
            self.log,
            errors,
            entity_type=self.entity_type,
            name=name,
            rule=rule,
            positions=self.batch.positions,
            value_at=value_at or (lambda row: _shown(self.batch.raw(name, row))),
            code=code,
        )
        np.logical_or(self.bad, to_mask(errors.messages.is_valid()), out=self.bad)


def _shown(value: object) -> str | None:
    return None if value is None else json_text(value)
