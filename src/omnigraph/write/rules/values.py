"""Rules of single rows: `enum`, `@range`, `@check`. Functions from Arrow batches to violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.row_errors import RowErrors, cut
from omnigraph.schema.values.rules import check_enum, check_pattern, check_range
from omnigraph.write.rules.violations import Violation, ViolationLog
from omnigraph.write.stage.columns import flat

TYPE_RULE: Final = "type"
"""The rule that a value is of the type of its property; its messages name the property only."""


@dataclass(frozen=True)
class RuleFindings:
    """What one rule found in a batch."""

    rule: str
    property: str
    errors: RowErrors


def has_value_rules(entity_type: EntityType) -> bool:
    """Whether a type has rules for single values at all."""
    if any(prop.prop_type.enum_values is not None for prop in entity_type.properties.values()):
        return True
    return isinstance(entity_type, NodeType) and bool(
        entity_type.range_constraints or entity_type.check_constraints
    )


def check_batch(entity_type: EntityType, batch: pa.RecordBatch) -> Iterator[RuleFindings]:
    """Check the value rules of a type over one batch of stored columns."""
    for name, prop in entity_type.properties.items():
        values = prop.prop_type.enum_values
        if values is not None:
            errors = check_enum(flat(batch[name]), values, type_name=entity_type.name, name=name)
            yield RuleFindings("enum", name, errors)
    if not isinstance(entity_type, NodeType):
        return
    for limits in entity_type.range_constraints:
        errors = check_range(flat(batch[limits.property]), limits, type_name=entity_type.name)
        yield RuleFindings("range", limits.property, errors)
    for check in entity_type.check_constraints:
        errors = check_pattern(flat(batch[check.property]), check, type_name=entity_type.name)
        yield RuleFindings("check", check.property, errors)


def check_values(
    entity_type: EntityType, rows: pa.Table, positions: pa.Array | None, log: ViolationLog
) -> None:
    """Check the value rules of a type over all rows that are written."""
    if not has_value_rules(entity_type):
        return
    start = 0
    for batch in rows.to_batches():
        for found in check_batch(entity_type, batch):
            if not found.errors.is_clean:
                own = None if positions is None else positions.slice(start, batch.num_rows)
                add_row_errors(
                    log,
                    found.errors,
                    type_name=entity_type.name,
                    table_key=entity_type.table_key,
                    name=found.property,
                    rule=found.rule,
                    positions=own,
                    value_at=values_of(flat(batch[found.property])),
                )
        start += batch.num_rows


def add_row_errors(
    log: ViolationLog,
    errors: RowErrors,
    *,
    type_name: str,
    name: str | None,
    rule: str,
    positions: pa.Array | None,
    value_at: Callable[[int], str | None] | None = None,
    code: str | None = None,
    table_key: str | None = None,
) -> None:
    """Turn the problems of rows into violations; beyond the limit they are only counted.

    `code` replaces the codes of the rows, where the rule has one of its own.
    """
    rows = np.flatnonzero(errors.messages.is_valid().to_numpy(zero_copy_only=False)).tolist()
    shown = rows[: log.room]
    for row in shown:
        own_code, message = errors.codes[row].as_py(), errors.messages[row].as_py()
        log.add(
            Violation(
                position=None if positions is None else positions[row].as_py(),
                type=type_name,
                property=name,
                value=None if value_at is None else value_at(row),
                rule=_rule_of(rule, own_code),
                code=code or own_code,
                message=f"{type_name}: {message}" if rule == TYPE_RULE else message,
                table_key=table_key,
            )
        )
    if len(rows) > len(shown):
        more = errors.codes.take(pa.array(rows[len(shown) :])).to_pylist()
        for own_code, count in Counter(more).items():
            log.count(_rule_of(rule, own_code), count)


def _rule_of(rule: str, code: str) -> str:
    """Name the rule that a value breaks; a value that is missing breaks one of its own."""
    return "required" if rule == TYPE_RULE and code == value_codes.MISSING else rule


def values_of(column: pa.Array) -> Callable[[int], str | None]:
    """Return how to show the values of a stored column."""

    def value_at(row: int) -> str | None:
        found = column[row].as_py()
        return None if found is None else cut(str(found))

    return value_at
