"""Rules of single rows: `enum`, `@range`, `@check`. Functions from Arrow batches to violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.catalog import CheckRule, RangeRule
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.constraints import check_enum, check_pattern, check_range
from omnigraph.schema.values.row_errors import RowErrors, cut
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.violations import Violation, ViolationLog
from omnigraph.write.stage.columns import flat

TYPE_RULE: Final = "type"
"""The rule that a value is of the type of its property; its messages name the property only."""


@dataclass(frozen=True)
class ValueRule:
    """One rule for the values of one property; `check` is a function from a column to errors."""

    name: str
    property: str
    check: Callable[[pa.Array], RowErrors]


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


def value_rules(entity_type: EntityType) -> Iterator[ValueRule]:
    """Yield the rules of a type for single values, in the order in which they are checked."""
    for name, prop in entity_type.properties.items():
        if prop.prop_type.enum_values is not None:
            yield enum_rule(name, prop.prop_type.enum_values, entity_type.name)
    if isinstance(entity_type, NodeType):
        yield from (range_rule(each, entity_type.name) for each in entity_type.range_constraints)
        yield from (pattern_rule(each, entity_type.name) for each in entity_type.check_constraints)


def enum_rule(name: str, values: Sequence[str], type_name: str) -> ValueRule:
    """Return the rule that values are among those of an enum."""
    check = partial(check_enum, values=values, type_name=type_name, name=name)
    return ValueRule("enum", name, check)


def range_rule(rule: RangeRule, type_name: str) -> ValueRule:
    """Return the rule that numbers are inside bounds."""
    check = partial(check_range, rule=rule, type_name=type_name)
    return ValueRule("range", rule.property, check)


def pattern_rule(rule: CheckRule, type_name: str) -> ValueRule:
    """Return the rule that a pattern occurs in texts."""
    check = partial(check_pattern, rule=rule, type_name=type_name)
    return ValueRule("check", rule.property, check)


def check_batch(entity_type: EntityType, batch: pa.RecordBatch) -> Iterator[RuleFindings]:
    """Check the value rules of a type over one batch of stored columns."""
    for rule in value_rules(entity_type):
        errors = rule.check(flat(batch[rule.property]))
        yield RuleFindings(rule.name, rule.property, errors)


def check_values(entity_type: EntityType, check: RuleCheck) -> None:
    """Check the value rules of a type over all rows that are written."""
    delta = check.of(entity_type.table_key)
    if delta is None or not has_value_rules(entity_type):
        return
    start = 0
    for batch in delta.rows.to_batches():
        for found in check_batch(entity_type, batch):
            if not found.errors.is_clean:
                own = delta.positions_of(start, batch.num_rows)
                add_row_errors(
                    check.log,
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
    table_key: TableKey | None = None,
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
    """Return the rule that a value breaks; a missing value breaks the rule `required`."""
    return "required" if rule == TYPE_RULE and code == value_codes.MISSING else rule


def values_of(column: pa.Array) -> Callable[[int], str | None]:
    """Return a function that shows a value of a stored column by its row."""

    def value_at(row: int) -> str | None:
        found = column[row].as_py()
        return None if found is None else cut(str(found))

    return value_at
