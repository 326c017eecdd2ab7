"""Hashes that are divided among buckets, and kept in files, are the same hashes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.write.load.check import buckets
from omnigraph.write.load.check.buckets import BUCKETS, Buckets, divided
from omnigraph.write.load.check.hashes import HashedColumn, RowLookup
from omnigraph.write.load.check.hashing import Hashes, HashPairs, HashScheme
from omnigraph.write.load.check.repeats import RepeatGroups
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.stage.columns import Integers

MEMORY = st.sampled_from([32, 32 * 4, 32 * 1_000])
"""For one row at once, for four, and for all."""
NAMES = st.lists(st.sampled_from("abcdefghij"), max_size=20)
SCHEME = HashScheme("seed")


def hashed(room: SpoolBudget, names: list[str], piece: int, start: int = 0) -> HashedColumn:
    column = HashedColumn(room, 2)
    column.start = start
    for low in range(0, len(names), piece):
        pairs = SCHEME.pairs(pa.array(names[low : low + piece], pa.utf8()))
        column.append(pairs.first, pairs.second)
    return column


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(1, 7), st.integers(1, 50))
def test_buckets_hold_all_rows_each_in_the_bucket_of_its_first_number(
    numbers: list[int], piece: int, rows_max: int
) -> None:
    with SpoolBudget(0) as room, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_RUN_ROWS", 3)
        made = Buckets(room, 2)
        for low in range(0, len(numbers), piece):
            part = np.array(numbers[low : low + piece], np.uint64)
            made.append(part, np.arange(low, low + len(part), dtype=np.uint64))
        ranges = list(divided(made.counts, rows_max))
        assert [bucket for within in ranges for bucket in within] == list(range(BUCKETS))
        found = []
        for within in ranges:
            first, rows = made.rows(within)
            filled = np.count_nonzero(made.counts[within.start : within.stop])
            assert len(first) <= rows_max or filled == 1
            assert all(int(number) >> 56 in within for number in first)
            found += list(zip(first.tolist(), rows.tolist(), strict=True))
        assert sorted(found, key=lambda pair: pair[1]) == [
            (number, row) for row, number in enumerate(numbers)
        ]
        assert len(made) == len(numbers)
        made.close()
        assert not room._opened


def test_columns_of_one_spool_are_read_in_the_same_pieces() -> None:
    # There is room for both columns of the first rows, and for one column of the next.
    with SpoolBudget(5 * 8) as room:
        column = hashed(room, ["a", "b", "c", "d"], piece=2)
        (pairs, rows), *_ = list(column.slabs())
        expected = SCHEME.pairs(pa.array(["a", "b", "c", "d"]))
        assert pairs.first.tolist() == expected.first.tolist()
        assert pairs.second.tolist() == expected.second.tolist()
        assert rows.tolist() == [0, 1, 2, 3]


@given(NAMES, NAMES, MEMORY, st.integers(1, 5), st.integers(0, 3))
def test_rows_are_found_by_their_ids_however_they_are_divided(
    known: list[str], wanted: list[str], memory: int, piece: int, start: int
) -> None:
    known = sorted(set(known))
    counted = np.ones(start + len(known), np.bool_)
    counted[start::3] = False
    rows = {name: start + n for n, name in enumerate(known) if counted[start + n]}
    expected = [rows.get(name, -1) for name in wanted]
    with SpoolBudget(memory) as room:
        lookup = RowLookup(hashed(room, known, piece, start), counted, room.rows_at_once)
        found = np.full(len(wanted), -2, np.int64)
        for places, numbers in lookup.joined(hashed(room, wanted, piece)):
            found[places] = numbers
        assert found.tolist() == expected
        pairs = SCHEME.pairs(pa.array(wanted, pa.utf8()))
        assert lookup.rows_of(HashPairs(pairs.first, pairs.second)).tolist() == expected
        places, numbers = lookup.hits(pa.array(wanted, pa.utf8()), SCHEME)
        hits = [(n, row) for n, row in enumerate(expected) if row >= 0]
        assert list(zip(places.tolist(), numbers.tolist(), strict=True)) == hits


@given(NAMES, MEMORY, st.integers(1, 5))
def test_repeated_hashes_are_found_however_they_are_divided(
    names: list[str], memory: int, piece: int
) -> None:
    counted = np.arange(len(names)) % 4 != 1
    kept = [name for name, counts in zip(names, counted, strict=True) if counts]
    again = {name for name in kept if kept.count(name) > 1}
    with SpoolBudget(memory) as room:
        column = hashed(room, names, piece)
        parts = list(column.parts(counted))
        found = [part.repeated() for part in parts]
        distinct = [part.distinct() for part in parts]
        rows = [row for part in parts for _, own in part.slabs() for row in own.tolist()]
    assert sorted(np.concatenate(found).tolist()) == sorted(hashes_of(again))
    assert sorted(np.concatenate(distinct).tolist()) == sorted(hashes_of(set(kept)))
    assert sorted(rows) == np.flatnonzero(counted).tolist()


def hashes_of(names: set[str]) -> list[int]:
    hashes: Hashes = SCHEME.texts(pa.array(sorted(names), pa.utf8()))
    return [int(number) for number in hashes]


@given(NAMES, st.integers(1, 5))
def test_rows_in_pieces_know_the_first_and_the_previous_row_of_their_text(
    names: list[str], piece: int
) -> None:
    expected = [
        (row, names.index(name), max(n for n in range(row) if names[n] == name))
        for row, name in enumerate(names)
        if name in names[:row]
    ]
    groups = RepeatGroups()
    found: list[tuple[int, int, int]] = []
    for texts, rows in pieces(names, piece):
        again = groups.feed(texts, rows)
        columns = (again.rows, again.first, again.previous)
        found += zip(*(column.tolist() for column in columns), strict=True)
    assert found == expected


def pieces(names: list[str], piece: int) -> Iterator[tuple[pa.Array, Integers]]:
    for low in range(0, len(names), piece):
        part = names[low : low + piece]
        yield pa.array(part, pa.utf8()), np.arange(low, low + len(part))
