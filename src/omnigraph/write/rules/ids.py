"""Ids: a write gives each once, and an insert gives none that is stored.

The id of a keyed row spells its key, so two rows with one id have one key.
"""

from __future__ import annotations

from typing import Final

from omnigraph.schema import EntityType, NodeType
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import FoundRows, RuleCheck, WrittenRows
from omnigraph.write.rules.unique import add_shared
from omnigraph.write.rules.violations import KEY_RULE, KeyConflict, Violation

KEY_CONFLICT_RULE: Final = "key_conflict"


def check_repeated_ids(entity_type: EntityType, check: RuleCheck) -> None:
    """Check that no two rows of a write have one id."""
    rows = check.rows(entity_type)
    if rows is None:
        return
    found = check.repeated_ids(rows)
    if not found.total:
        return
    if entity_type.key:
        add_shared(rows, entity_type.key, found, check, rule=KEY_RULE)
    else:
        _add_conflicts(rows, found, check, is_stored=False)


def check_stored_ids(entity_type: EntityType, check: RuleCheck) -> None:
    """Check that no row is inserted under an id that is stored."""
    rows = check.rows(entity_type)
    if rows is None:
        return
    found = check.stored_ids(rows)
    if found.total:
        _add_conflicts(rows, found, check, is_stored=True)


def _add_conflicts(
    rows: WrittenRows, found: FoundRows, check: RuleCheck, *, is_stored: bool
) -> None:
    """Add ids that cannot be inserted."""
    findings, entity_type = check.findings, rows.entity_type
    kind = "node" if isinstance(entity_type, NodeType) else "edge"
    shown = found.rows if findings.quarantines else found.rows[: findings.conflicts.room]
    ids = rows.pick(shown, ("id",))["id"].to_pylist()
    positions = rows.positions(shown)
    firsts = None if is_stored else rows.positions(found.others[: len(shown)])
    for n, (row, entity_id) in enumerate(zip(shown.tolist(), ids, strict=True)):
        conflict = KeyConflict(kind, entity_type.name, entity_id, is_stored=is_stored)
        where = "" if firsts is None else check.both_positions(firsts[n], positions[n])
        violation = Violation(
            position=positions[n],
            type=entity_type.name,
            property="id",
            value=entity_id,
            rule=KEY_CONFLICT_RULE,
            code=codes.KEY_CONFLICT,
            message=conflict.text + where,
            table_key=entity_type.table_key,
        )
        if findings.quarantines:
            findings.add(row, violation)
        else:
            findings.add_conflict(conflict, violation)
    if not findings.quarantines:
        findings.conflicts.count(KEY_CONFLICT_RULE, found.total - len(shown))
