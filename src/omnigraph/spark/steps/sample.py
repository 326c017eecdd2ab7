"""Checks some rows of a step by the rules of single rows, without writing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph.clock import SystemClock
from omnigraph.schema import EntityType
from omnigraph.schema.values import codes
from omnigraph.schema.values.arrow import convert_arrow
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.values import PropType
from omnigraph.write.load.input.tables import column_batch
from omnigraph.write.load.rows.check_rows import RowRules, check_rows
from omnigraph.write.stage.external_blobs import ExternalBlobs

_SHOWN_MAX: Final = 3
_KIND_CODES: Final = frozenset({codes.WRONG_KIND, codes.NOT_AN_ARRAY})


@dataclass(frozen=True)
class SampleCheck:
    """How many rows were looked at, how many break a rule, and what the first of them break."""

    rows: int
    rejected: int
    problems: tuple[str, ...] = ()


def _rules(entity_type: EntityType) -> RowRules:
    return RowRules(
        entity_type, ConversionMode.STRICT, ExternalBlobs((), {}), copies_external=False
    )


def mapped_ids(entity_type: EntityType, rows: pa.Table) -> list[str]:
    """Return the ids of the rows of a table that has the columns of a type."""
    rules, found = _rules(entity_type), list[str]()
    for batch in rows.to_batches():
        checked = check_rows(rules, column_batch(entity_type, batch, 1), SystemClock())
        found += checked.rows.column("id").to_pylist()
    return found


def check_sample(entity_type: EntityType, rows: pa.Table) -> SampleCheck:
    """Check the rows of a table that has the columns of a type."""
    rules = _rules(entity_type)
    rejected, problems = 0, list[str]()
    for batch in rows.to_batches():
        checked = check_rows(rules, column_batch(entity_type, batch, 1), SystemClock())
        rejected += int(checked.bad.sum())
        problems += [found.message for found in checked.log.kept]
    return SampleCheck(rows.num_rows, rejected, tuple(dict.fromkeys(problems))[:_SHOWN_MAX])


def kind_problem(column: pa.DataType, prop: PropType, name: str) -> str | None:
    """Return why a column of one type can never be a property; None if its values decide.

    >>> from omnigraph.values import Scalar
    >>> kind_problem(pa.bool_(), PropType(Scalar.I32), "age")
    "strict property 'age' expects Int32, got a column of bool"
    """
    probe = _probe(column)
    if probe is None:
        return None
    errors = convert_arrow(probe, prop, name).row_errors
    if errors.is_clean or errors.codes.cast(pa.utf8())[0].as_py() not in _KIND_CODES:
        return None
    return str(errors.messages[0].as_py())


def end_problem(column: pa.DataType, type_name: str, name: str) -> str | None:
    """Return why a column can never hold ids; None if its values decide.

    >>> end_problem(pa.float64(), "Knows", "src")
    "'src' of 'Knows' must be a text, a whole number or a date, found double"
    """
    is_id = pa.types.is_string(column) or pa.types.is_large_string(column)
    is_end = name != "id" and (pa.types.is_integer(column) or pa.types.is_date(column))
    if is_id or is_end or pa.types.is_null(column):
        return None
    expected = "a text" if name == "id" else "a text, a whole number or a date"
    return f"'{name}' of '{type_name}' must be {expected}, found {column}"


def _probe(kind: pa.DataType) -> pa.Array | None:
    """Return a column of one value of a type, to see what becomes of it."""
    if pa.types.is_list(kind):
        return pa.array([[]], kind)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return pa.array([{}] if pa.types.is_struct(kind) else [[]], kind)
    if pa.types.is_null(kind):
        return None
    value: object = False if pa.types.is_boolean(kind) else 0
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        value = "0"
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        value = b"0"
    return pa.array([value], pa.int64()).cast(kind) if _is_day(kind) else pa.array([value], kind)


def _is_day(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_date32(kind))
