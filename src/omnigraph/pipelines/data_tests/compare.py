"""Compares rows that were expected with rows that were found.

1. Only the columns that an expected row names are compared.
2. Rows are a bag: each expected row needs a found row of its own. With `ordered` they are a list.
3. Floats are equal up to 1e-9, absolutely or relatively, unless `exactly` is asked for. A boolean
   is no number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.pipelines.data_tests.model import Row
from omnigraph.pipelines.data_tests.values import json_bytes

TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class Mismatch:
    """Rows that are missing and rows that are too many; none of both means another order."""

    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    moved: int | None = None
    """The first position, from 1, at which an ordered result has another row."""


def canonical(row: Row) -> str:
    """Return a row as one line, with its columns in the order of their names."""
    return json_bytes(row, sorts_names=True).decode()


def compare_rows(
    expected: Sequence[Row], found: Sequence[Row], *, ordered: bool, exactly: bool
) -> Mismatch | None:
    """Return how rows differ; None if they do not."""
    named = frozenset(column for row in expected for column in row)
    if ordered and len(expected) == len(found):
        pairs = zip(expected, found, strict=True)
        wrong = [at for at, (want, has) in enumerate(pairs, 1) if not _fits(want, has, exactly)]
        if not wrong:
            return None
    else:
        wrong = []
    matched = _matching(expected, found, exactly)
    missing = tuple(row for at, row in enumerate(expected) if at not in matched)
    taken = set(matched.values())
    extra = tuple(_shown(row, named) for at, row in enumerate(found) if at not in taken)
    if missing or extra:
        return Mismatch(missing, extra)
    return Mismatch(moved=wrong[0]) if wrong else None


def _shown(row: Row, named: frozenset[str]) -> Row:
    """Return the compared columns of a found row; all of them where no row was expected."""
    return {key: value for key, value in row.items() if key in named} if named else row


def _fits(expected: Row, found: Row, exactly: bool) -> bool:
    return all(
        column in found and equal_values(value, found[column], exactly=exactly)
        for column, value in expected.items()
    )


def equal_values(expected: object, found: object, *, exactly: bool) -> bool:
    """Whether two values of JSON are equal.

    >>> equal_values(0.3, 0.1 + 0.2, exactly=False), equal_values(0.3, 0.1 + 0.2, exactly=True)
    (True, False)
    >>> equal_values(1, 1.0, exactly=True), equal_values(True, 1, exactly=False)
    (True, False)
    """
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(
            equal_values(one, other, exactly=exactly)
            for one, other in zip(expected, found, strict=True)
        )
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        has_float = isinstance(expected, float) or isinstance(found, float)
        if exactly or not has_float:
            return expected == found
        return math.isclose(expected, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return expected == found


def _matching(expected: Sequence[Row], found: Sequence[Row], exactly: bool) -> dict[int, int]:
    """Return as many pairs of positions as possible; each position is in one pair at most.

    Equal rows are paired first. Rows that name different columns, or are equal only nearly, compete
    for found rows: what is left is paired by augmenting paths.
    """
    matched = _equal_pairs(expected, found)
    free = [at for at in range(len(found)) if at not in set(matched.values())]
    open_rows = [at for at in range(len(expected)) if at not in matched]
    if len({frozenset(row) for row in expected}) > 1:
        matched, free, open_rows = {}, list(range(len(found))), list(range(len(expected)))
    fits = {
        at: [other for other in free if _fits(expected[at], found[other], exactly)]
        for at in open_rows
    }
    owners: dict[int, int] = {}
    for start in open_rows:
        _augment(start, fits, owners)
    return matched | {at: other for other, at in owners.items()}


def _equal_pairs(expected: Sequence[Row], found: Sequence[Row]) -> dict[int, int]:
    """Return pairs of rows that are equal to the last digit, in the columns of the first one."""
    columns = tuple(expected[0]) if expected else ()
    by_text: dict[str, list[int]] = {}
    for at in reversed(range(len(found))):
        projected = {column: found[at].get(column) for column in columns}
        by_text.setdefault(canonical(projected), []).append(at)
    matched: dict[int, int] = {}
    for at, row in enumerate(expected):
        same = by_text.get(canonical(row))
        if same:
            matched[at] = same.pop()
    return matched


def _augment(start: int, fits: dict[int, list[int]], owners: dict[int, int]) -> None:
    """Give an expected row a found one, moving other expected rows to others where needed."""
    came_from: dict[int, int] = {}
    queue = [start]
    for at in queue:
        for other in fits[at]:
            if other in came_from:
                continue
            came_from[other] = at
            if other not in owners:
                _reassign(other, start, came_from, owners)
                return
            queue.append(owners[other])


def _reassign(free: int, start: int, came_from: dict[int, int], owners: dict[int, int]) -> None:
    """Walk the path back from a free row and change the owner of every found row on it."""
    held = {at: other for other, at in owners.items()}
    other = free
    while True:
        at = came_from[other]
        owners[other] = at
        if at == start:
            return
        other = held[at]
