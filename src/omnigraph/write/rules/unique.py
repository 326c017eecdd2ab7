"""`@key` and `@unique`: no two rows share a tuple; a null member exempts the row.

First the records of the input among each other, even two of one id; then the written rows against
stored rows that stay. A stored holder of a key is the row that is being replaced, so keys are not
looked up here: an insert that must not replace is a key conflict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.schema import EdgeType, EntityType, NodeType
from omnigraph.schema.values.ids import spell
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.judgement import Judgement
from omnigraph.write.rules.violations import Violation, ViolationLog
from omnigraph.write.stage.columns import flat, is_in, repeated, tuple_codes
from omnigraph.write.stage.delta import TableDelta


def unique_tuples(entity_type: EntityType) -> tuple[tuple[str, ...], ...]:
    """Return the member names of every tuple that rows must not share, the key's first."""
    key = (entity_type.key,) if isinstance(entity_type, NodeType) and entity_type.key else ()
    return key + tuple(members for members in entity_type.unique_constraints if members not in key)


def judged_columns(entity_type: EntityType) -> tuple[str, ...]:
    """Return the columns that rules across rows look at."""
    ends = ("src", "dst") if isinstance(entity_type, EdgeType) else ()
    members = sorted(
        {name for members in unique_tuples(entity_type) for name in members} - set(ends)
    )
    return ("id", *ends, *members)


def check_unique(entity_type: EntityType, judgement: Judgement) -> None:
    """Check all tuples of one type."""
    delta = judgement.of(entity_type.table_key)
    if delta is None or not delta.rows.num_rows:
        return
    is_keyed = isinstance(entity_type, NodeType) and bool(entity_type.key)
    for number, members in enumerate(unique_tuples(entity_type)):
        is_key = is_keyed and number == 0
        _check_input(entity_type, members, delta, judgement.log, is_key=is_key)
        if not is_key and not judgement.is_overwritten(entity_type.table_key):
            _check_stored(entity_type, members, delta, judgement)


def check_rows_apart(
    entity_type: EntityType,
    rows: pa.Table,
    log: ViolationLog,
    *,
    positions: pa.Array | None = None,
) -> None:
    """Check the `@unique` tuples of rows among each other, such as those of one update."""
    for members in entity_type.unique_constraints:
        _check_apart(entity_type, members, _Records(rows, positions), log, is_key=False)


def _check_input(
    entity_type: EntityType,
    members: tuple[str, ...],
    delta: TableDelta,
    log: ViolationLog,
    *,
    is_key: bool,
) -> None:
    if delta.records is not None:
        found = _Records(delta.records, delta.record_positions)
    elif not is_key:
        found = _Records(delta.rows, delta.positions)
    else:
        # One row per id, and the id is the spelling of the key: nothing can repeat.
        return
    _check_apart(entity_type, members, found, log, is_key=is_key)


@dataclass(frozen=True)
class _Records:
    """Rows, and where each came from."""

    rows: pa.Table
    positions: pa.Array | None

    def position(self, row: int) -> int | None:
        return None if self.positions is None else self.positions[row].as_py()


def _check_apart(
    entity_type: EntityType,
    members: tuple[str, ...],
    records: _Records,
    log: ViolationLog,
    *,
    is_key: bool,
) -> None:
    ids = records.rows["id"]
    # The id spells the key, and is one column where a composite key has several.
    columns = [ids] if is_key else [spell(flat(records.rows[name])) for name in members]
    again, first = repeated(columns)
    rule = "key" if is_key else "unique"
    shown = again[: log.room].tolist()
    for row, holder in zip(shown, first.tolist(), strict=False):
        log.add(
            unique_violation(
                entity_type,
                members,
                [spell(flat(records.rows[name].slice(row, 1)))[0].as_py() for name in members],
                held_by=(ids[holder].as_py(), ids[row].as_py()),
                position=records.position(row),
                rule=rule,
            )
        )
    log.count(rule, len(again) - len(shown))


def _check_stored(
    entity_type: EntityType, members: tuple[str, ...], delta: TableDelta, judgement: Judgement
) -> None:
    if not judgement.stored.row_count(entity_type.table_key):
        return
    wanted = _spelled(delta.rows, members)
    holders = _holders(members, delta, judgement)
    pairs = matching_rows(members, delta.rows, holders)
    shown = pairs[: judgement.log.room]
    judgement.log.count("unique", len(pairs) - len(shown))
    for row, holder in shown:
        judgement.log.add(
            unique_violation(
                entity_type,
                members,
                [wanted[name][row].as_py() for name in members],
                held_by=(holders["id"][holder].as_py(), delta.rows["id"][row].as_py()),
                position=None if delta.positions is None else delta.positions[row].as_py(),
                rule="unique",
            )
        )


def _holders(members: tuple[str, ...], delta: TableDelta, judgement: Judgement) -> pa.Table:
    """Read the stored rows that stay and share the first member with a written row."""
    lead = lead_member(members, judgement.stored.snapshot.open(delta.table_key).indexes())
    values = flat(delta.rows[lead])
    columns = ("id", *members)
    if pa.types.is_floating(values.type):
        # Both zeros are one value here and two in a filter.
        slabs = list(judgement.stored.scan(delta.table_key, columns))
        found = pa.concat_tables(slabs)
    else:
        found = judgement.stored.where(delta.table_key, lead, values, columns=columns)
    leaving = is_in(found["id"], delta.rows["id"]) | is_in(found["id"], delta.deleted)
    return found.filter(pa.array(~leaving)).combine_chunks()


def lead_member(members: tuple[str, ...], indexes: Iterable[object]) -> str:
    """Choose the member to look up by: one with an index, if there is any."""
    indexed = {column for index in indexes for column in getattr(index, "columns", ())[:1]}
    return next((name for name in members if name in indexed), members[0])


def _spelled(rows: pa.Table, members: tuple[str, ...]) -> pa.Table:
    return pa.table({name: spell(flat(rows[name])) for name in members})


def matching_rows(
    members: tuple[str, ...], written: pa.Table, holders: pa.Table
) -> list[tuple[int, int]]:
    """Pair written rows with stored holders of the same tuple, in the order of written rows."""
    if not holders.num_rows or not written.num_rows:
        return []
    both = pa.concat_tables([_spelled(holders, members), _spelled(written, members)])
    codes, valid, _ = tuple_codes([both[name] for name in members])
    count = holders.num_rows
    held = np.flatnonzero(valid[:count])
    if not len(held):
        return []
    distinct, first = np.unique(codes[held], return_index=True)
    rows = np.flatnonzero(valid[count:])
    own = codes[count:][rows]
    places = np.minimum(np.searchsorted(distinct, own), len(distinct) - 1)
    hits = np.flatnonzero(distinct[places] == own)
    return list(zip(rows[hits].tolist(), held[first[places[hits]]].tolist(), strict=True))


def unique_violation(
    entity_type: EntityType,
    members: tuple[str, ...],
    values: list[str],
    *,
    held_by: tuple[str, str],
    position: int | None,
    rule: str,
    where: str = "",
) -> Violation:
    """Say that two rows share a tuple; `where` names their places in the input."""
    is_single = len(members) == 1
    subject = members[0] if is_single else f"({', '.join(members)})"
    value = cut(values[0] if is_single else f"({', '.join(values)})")
    first, second = (cut(holder) for holder in held_by)
    return Violation(
        position=position,
        type=entity_type.name,
        property=", ".join(members),
        value=value,
        rule=rule,
        code=codes.NOT_UNIQUE,
        message=f"@unique violation on {entity_type.name}.{subject}: value '{value}' held by"
        f" '{first}' and '{second}'{where}",
        table_key=entity_type.table_key,
    )
