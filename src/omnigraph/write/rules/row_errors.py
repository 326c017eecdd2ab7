"""Turns problems of single rows into violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.row_errors import RowErrors, cut
from omnigraph.write.rules.violations import Violation, ViolationLog

TYPE_RULE: Final = "type"
"""The rule that a value is of the type of its property; its messages name the property only."""


def add_row_errors(
    log: ViolationLog,
    errors: RowErrors,
    *,
    entity_type: EntityType,
    name: str | None,
    rule: str,
    positions: pa.Array | None,
    value_at: Callable[[int], str | None] | None = None,
    code: str | None = None,
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
                type=entity_type.name,
                property=name,
                value=None if value_at is None else value_at(row),
                rule=_rule_of(rule, own_code),
                code=code or own_code,
                message=f"{entity_type.name}: {message}" if rule == TYPE_RULE else message,
                table_key=entity_type.table_key,
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
