"""`@unique`: no two rows share a tuple; a null member exempts the row.

The written rows are compared with each other, then with the stored rows that stay. A key needs no
look-up: the id spells it, a change has one row per id, and a stored row of that id is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.values.ids import spell
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.violations import Violation, ViolationLog
from omnigraph.write.stage.columns import flat, is_in, repeated, tuple_codes
from omnigraph.write.stage.delta import TableDelta

UNIQUE_RULE: Final = "unique"


def unique_tuples(entity_type: EntityType) -> tuple[tuple[str, ...], ...]:
    """Return the member names of every tuple but the key that rows must not share."""
    key = entity_type.key if isinstance(entity_type, NodeType) else ()
    return tuple(members for members in entity_type.unique_constraints if members != key)


def check_unique(entity_type: EntityType, check: RuleCheck) -> None:
    """Check every `@unique` tuple of one type."""
    delta = check.of(entity_type.table_key)
    if delta is None or not delta.rows.num_rows:
        return
    for members in unique_tuples(entity_type):
        _check_written(entity_type, members, delta, check.log)
        _check_stored(entity_type, members, delta, check)


def _check_written(
    entity_type: EntityType, members: tuple[str, ...], delta: TableDelta, log: ViolationLog
) -> None:
    ids = delta.rows["id"]
    again, first = repeated([spell(flat(delta.rows[name])) for name in members])
    shown = again[: log.room].tolist()
    for row, holder in zip(shown, first.tolist(), strict=False):
        log.add(
            unique_violation(
                entity_type,
                members,
                [spell(flat(delta.rows[name].slice(row, 1)))[0].as_py() for name in members],
                held_by=(ids[holder].as_py(), ids[row].as_py()),
                position=delta.position(row),
                rule=UNIQUE_RULE,
            )
        )
    log.count(UNIQUE_RULE, len(again) - len(shown))


def _check_stored(
    entity_type: EntityType, members: tuple[str, ...], delta: TableDelta, check: RuleCheck
) -> None:
    if not check.stored.row_count(entity_type.table_key):
        return
    wanted = _spelled(delta.rows, members)
    holders = _holders(members, delta, check)
    pairs = matching_rows(members, delta.rows, holders)
    shown = pairs[: check.log.room]
    check.log.count(UNIQUE_RULE, len(pairs) - len(shown))
    for row, holder in shown:
        check.log.add(
            unique_violation(
                entity_type,
                members,
                [wanted[name][row].as_py() for name in members],
                held_by=(holders["id"][holder].as_py(), delta.rows["id"][row].as_py()),
                position=delta.position(row),
                rule=UNIQUE_RULE,
            )
        )


def _holders(members: tuple[str, ...], delta: TableDelta, check: RuleCheck) -> pa.Table:
    """Read the stored rows that stay and share the first member with a written row."""
    lead = lead_member(members, check.stored.snapshot.open(delta.table_key).indexes())
    values = flat(delta.rows[lead])
    columns = ("id", *members)
    if pa.types.is_floating(values.type):
        # 0.0 and -0.0 are one value here and two in a filter.
        slabs = list(check.stored.scan(delta.table_key, columns))
        found = pa.concat_tables(slabs)
    else:
        found = check.stored.where(delta.table_key, lead, values, columns=columns)
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
    """Return the violation of two rows that share a tuple; `where` names their positions."""
    value = cut(tuple_text(values))
    first, second = (cut(holder) for holder in held_by)
    return Violation(
        position=position,
        type=entity_type.name,
        property=", ".join(members),
        value=value,
        rule=rule,
        code=codes.NOT_UNIQUE,
        message=unique_message(entity_type.name, members, value, held_by=(first, second)) + where,
        table_key=entity_type.table_key,
    )


def unique_message(
    type_name: str, members: tuple[str, ...], value: str, *, held_by: tuple[str, str]
) -> str:
    """Return the sentence about two rows that share a tuple."""
    first, second = held_by
    return (
        f"@unique violation on {type_name}.{tuple_text(members)}: value '{value}' held by"
        f" '{first}' and '{second}'"
    )


def tuple_text(parts: Sequence[str]) -> str:
    """Return names or values as one text.

    >>> tuple_text(["a"]), tuple_text(["a", "b"])
    ('a', '(a, b)')
    """
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
