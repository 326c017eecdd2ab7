"""The rows that a statement selects: one condition for stored rows and for rows in memory.

What the store can decide exactly is pushed down to it, the rest is evaluated on the rows it
returns. Rows in memory are always evaluated, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.bindings import Bindings, no_bindings
from omnigraph.query.plan.plan import AllOf, Predicate
from omnigraph.read.access.push_down import conjuncts, push_down
from omnigraph.read.operators.predicates import evaluate, predicate_columns
from omnigraph.store import filters
from omnigraph.write.stage.columns import Column, is_in

VALUES_PUSHED_MAX: Final = 1_000
"""More values than this are not pushed down into the scan, but compared with its rows."""

RowTest: TypeAlias = Callable[[pa.Table], pa.Array]
"""Returns for each row of a table whether it is selected; null means no."""


@dataclass(frozen=True)
class Condition:
    """The rows that are selected.

    A row in memory is meant when `holds` says so. A stored one is meant when it passes `pushed`
    and `rest`, which looks at `rest_columns`; None lets every row pass.
    """

    holds: RowTest
    pushed: filters.Filter | None
    rest: RowTest | None = None
    rest_columns: frozenset[str] = frozenset()


def condition_of(predicate: Predicate, bindings: Bindings) -> Condition:
    """Return the condition that a predicate is true."""
    pushed: list[filters.Filter] = []
    rest: list[Predicate] = []
    for part in conjuncts((predicate,)):
        found = push_down(part, bindings)
        if found is None:
            rest.append(part)
        else:
            pushed.append(found)
    left = AllOf(tuple(rest))
    return Condition(
        holds=lambda rows: evaluate(predicate, rows, bindings),
        pushed=filters.AllOf(tuple(pushed)) if pushed else None,
        rest=(lambda rows: evaluate(left, rows, bindings)) if rest else None,
        rest_columns=predicate_columns(rest),
    )


def constant_condition(predicate: Predicate) -> Condition:
    """Return the condition that a predicate without parameters and without `now()` is true."""
    return condition_of(predicate, no_bindings(0))


def has_value_in(columns: tuple[str, ...], values: Column) -> Condition:
    """Return the condition that at least one of some text columns holds one of these values."""

    def holds(rows: pa.Table) -> pa.Array:
        return pa.array(reduce(np.logical_or, [is_in(rows[name], values) for name in columns]))

    if len(values) > VALUES_PUSHED_MAX:
        return Condition(holds, None, holds, frozenset(columns))
    listed = tuple(values.to_pylist())
    return Condition(holds, filters.AnyOf(tuple(filters.OneOf(name, listed) for name in columns)))
