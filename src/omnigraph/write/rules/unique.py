"""`@unique`: no two rows share a tuple; a null member exempts the row.

The written rows are compared with each other, then with the stored rows that stay. A key needs no
look-up: the id spells it, a change has one row per id, and a stored row of that id is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.schema.values.ids import spell
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import Found, FoundRows, RuleCheck, WrittenRows
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers, flat, tuple_codes

UNIQUE_RULE: Final = "unique"


def unique_tuples(entity_type: EntityType) -> tuple[tuple[str, ...], ...]:
    """Return the member names of every tuple but the key that rows must not share."""
    key = set(entity_type.key)
    return tuple(members for members in entity_type.unique_constraints if set(members) != key)


def check_unique(entity_type: EntityType, check: RuleCheck) -> None:
    """Check every `@unique` tuple of one type."""
    rows = check.rows(entity_type)
    if rows is None:
        return
    for members in unique_tuples(entity_type):
        add_shared(rows, members, check.repeated(rows, members), check, rule=UNIQUE_RULE)
        _add_held(rows, members, check.held(rows, members), check)


def add_shared(
    rows: WrittenRows,
    members: tuple[str, ...],
    found: FoundRows,
    check: RuleCheck,
    *,
    rule: str,
) -> None:
    """Add rows whose tuples earlier rows have; `found.others` are these."""
    if not found.total:
        return
    again, first = found.rows, found.others
    both = np.unique(np.concatenate([again, first]))
    ids, values = _ids_and_values(rows, both, members)
    positions, firsts = rows.positions(again), rows.positions(first)
    places = np.searchsorted(both, again).tolist(), np.searchsorted(both, first).tolist()
    for n, (row, holder) in enumerate(zip(*places, strict=True)):
        violation = unique_violation(
            rows.entity_type,
            members,
            values[row],
            held_by=(ids[holder], ids[row]),
            position=positions[n],
            rule=rule,
            where=check.both_positions(firsts[n], positions[n]),
        )
        check.findings.add(int(again[n]), violation)
    check.findings.count(rule, found.total - len(again))


def _add_held(
    rows: WrittenRows, members: tuple[str, ...], held: Found[tuple[int, str]], check: RuleCheck
) -> None:
    """Add rows whose tuples stored rows have."""
    if not held.total:
        return
    numbers = np.array([row for row, _ in held.first], np.int64)
    ids, values = _ids_and_values(rows, numbers, members)
    positions = rows.positions(numbers)
    for n, (row, holder) in enumerate(held.first):
        violation = unique_violation(
            rows.entity_type,
            members,
            values[n],
            held_by=(holder, ids[n]),
            position=positions[n],
            rule=UNIQUE_RULE,
        )
        check.findings.add(row, violation)
    check.findings.count(UNIQUE_RULE, held.total - len(held.first))


def _ids_and_values(
    rows: WrittenRows, numbers: Integers, members: tuple[str, ...]
) -> tuple[list[str], list[list[str]]]:
    """Return the ids of some rows, and their tuples as texts."""
    picked = rows.pick(numbers, tuple(dict.fromkeys(("id", *members))))
    spelled = [spell(flat(picked[name])).to_pylist() for name in members]
    return picked["id"].to_pylist(), [list(values) for values in zip(*spelled, strict=True)]


def lead_member(members: tuple[str, ...], indexes: Iterable[object]) -> str:
    """Choose the member to look up by: one with an index, if there is any."""
    indexed = {column for index in indexes for column in getattr(index, "columns", ())[:1]}
    return next((name for name in members if name in indexed), members[0])


def _spelled(rows: pa.Table, members: tuple[str, ...]) -> pa.Table:
    return pa.table({name: spell(flat(rows[name])) for name in members})


def can_look_up(kind: pa.DataType) -> bool:
    """Whether a filter finds all members that are equal here: not 0.0 and -0.0."""
    return not pa.types.is_floating(kind)


def comparable(column: pa.Array) -> pa.Array:
    """Return a column whose values are equal where members are."""
    return column if can_look_up(column.type) else spell(column)


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
