"""What each rule measures, batch by batch; no row becomes a Python value.

`unique` keeps the compared columns of the whole type in memory, all others keep a number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.pipelines.contracts.bind import bound_value, column_type
from omnigraph.pipelines.contracts.model import Bound, ContractRule
from omnigraph.schema import EntityType

_DAY_MS: Final = 86_400_000


class Measure(Protocol):
    """Sees all rows of a type, one batch after the other."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        ...

    def found(self) -> dict[str, object]:
        """Return what was measured, by the name that the expectation has for it."""
        ...


class _Repeated:
    """How many combinations of values more than one row has; a null is equal to nothing."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = list(columns)
        self._parts: list[pa.Table] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._parts.append(pa.Table.from_batches([batch.select(self._columns)]).drop_null())

    def found(self) -> dict[str, object]:
        if not self._parts:
            return {"repeated": 0}
        rows = pa.concat_tables(self._parts)
        counted = rows.group_by(self._columns).aggregate([([], "count_all")])
        return {"repeated": pc.sum(pc.greater(counted["count_all"], 1)).as_py() or 0}


class _Share:
    """The share of rows that have a value; 1 where there is no row."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._rows = 0
        self._nulls = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._nulls += batch[self._column].null_count

    def found(self) -> dict[str, object]:
        return {"share": 1 - self._nulls / self._rows if self._rows else 1.0}


class _Outside:
    """How many values are outside of two bounds; NaN is outside of any."""

    def __init__(self, column: str, low: pa.Scalar | None, high: pa.Scalar | None) -> None:
        self._column = column
        self._sides: list[tuple[Callable[..., Any], pa.Scalar]] = []
        if low is not None:
            self._sides.append((pc.greater_equal, low))
        if high is not None:
            self._sides.append((pc.less_equal, high))
        self._outside = 0

    def add(self, batch: pa.RecordBatch) -> None:
        values = batch[self._column].drop_null()
        sides = [compare(values, bound) for compare, bound in self._sides]
        if sides:
            inside = reduce(pc.and_, sides)
            self._outside += len(values) - (pc.sum(inside).as_py() or 0)

    def found(self) -> dict[str, object]:
        return {"outside": self._outside}


class _Age:
    """How many seconds old the newest value is; nothing where there is no value."""

    def __init__(self, column: str, now_us: int) -> None:
        self._column = column
        self._now_us = now_us
        self._newest_ms: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        newest = pc.max(batch[self._column])
        if not newest.is_valid:
            return
        moment_ms = (
            newest.cast(pa.int32()).as_py() * _DAY_MS
            if pa.types.is_date32(newest.type)
            else newest.cast(pa.int64()).as_py()
        )
        self._newest_ms = max(moment_ms, self._newest_ms or moment_ms)

    def found(self) -> dict[str, object]:
        if self._newest_ms is None:
            return {"age_s": None}
        return {"age_s": self._now_us // 1_000_000 - self._newest_ms // 1_000}


def measure_of(rule: ContractRule, entity_type: EntityType, now_us: int) -> Measure:
    """Return what measures a rule that fits its type."""
    match rule.kind:
        case "unique":
            return _Repeated(rule.columns)
        case "not_null":
            return _Share(rule.columns[0])
        case "range":
            column = rule.columns[0]
            return _Outside(
                column,
                _bound(entity_type, column, rule.low),
                _bound(entity_type, column, rule.high),
            )
        case "fresh":
            return _Age(rule.columns[0], now_us)
    raise AssertionError(f"'{rule.kind}' is not measured by rows")


def _bound(entity_type: EntityType, column: str, bound: Bound | None) -> pa.Scalar | None:
    prop_type = column_type(entity_type, column)
    if bound is None or prop_type is None:
        return None
    return bound_value(prop_type, column, bound)[0]
