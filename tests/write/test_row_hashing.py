"""Hashes of whole rows: equal exactly where rows are equal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.schema.values.equality import equal_rows
from omnigraph.write.load.check.hashing import HashPairs, HashScheme
from omnigraph.write.load.check.row_hashing import hash_rows, hash_tuples
from omnigraph.write.stage.columns import Mask

NAN = float("nan")
POOLS = [
    pa.array(["", "a", "b", None, "é", "x" * 300, "x" * 299 + "y"]),
    pa.array([0, 1, -1, None, 2**31 - 1], pa.int32()),
    pa.array([0, 1, 2**63, None, 2**64 - 1], pa.uint64()),
    pa.array([0.0, -0.0, NAN, None, 1.5], pa.float64()),
    pa.array([0.0, -0.0, NAN, None, 1.5], pa.float32()),
    pa.array([True, False, None]),
    pa.array([0, 1, None, -1], pa.int32()).view(pa.date32()),
    pa.array([0, 1, None, 86_400_001], pa.int64()).view(pa.date64()),
    pa.array([[], None, [1], [1, 2], [2, 1], [None], [1, None], [None, 1]], pa.list_(pa.int64())),
    pa.array([[], [""], None, ["a", "b"], ["ab"], ["a", "", "b"]], pa.list_(pa.utf8())),
    pa.array([[0.0, 1.0], [-0.0, 1.0], None, [1.0, 0.0]], pa.list_(pa.float32(), 2)),
]
SCHEME = HashScheme("a seed")


def same(left: HashPairs, right: HashPairs) -> Mask:
    equal: Mask = (left.first == right.first) & (left.second == right.second)
    return equal


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: str(pool.type))
def test_values_have_equal_hashes_where_they_are_equal(pool: pa.Array) -> None:
    count = len(pool)
    left = pool.take(pa.array(np.repeat(np.arange(count), count)))
    right = pool.take(pa.array(np.tile(np.arange(count), count)))
    hashed = [hash_rows(SCHEME, [column], count * count) for column in (left, right)]
    assert same(*hashed).tolist() == equal_rows(left, right).tolist()
    # A part of a column has the hashes of its rows.
    part = hash_rows(SCHEME, [left.slice(3, 4)], 4)
    assert same(part, HashPairs(hashed[0].first[3:7], hashed[0].second[3:7])).all()


def test_rows_differ_where_a_column_does_or_a_null_is_elsewhere() -> None:
    columns = [pa.array([None, 0, 0, 1, 0]), pa.array([0, None, 0, 0, 1])]
    hashed = hash_rows(SCHEME, columns, 5)
    assert len(set(hashed.first.tolist())) == 5
    assert not same(hashed, hash_rows(HashScheme("another"), columns, 5)).any()


def test_contents_of_blobs_are_hashed_and_null_is_no_content() -> None:
    def blobs(*values: bytes | None) -> pa.Array:
        fields = [("data", pa.large_binary()), ("uri", pa.utf8())]
        rows = [None if value is None else {"data": value, "uri": None} for value in values]
        return pa.array(rows, pa.struct(fields))

    left = hash_rows(SCHEME, [blobs(b"hi", b"", None, b"hi")], 4)
    right = hash_rows(SCHEME, [blobs(b"hi", None, None, b"he")], 4)
    assert same(left, right).tolist() == [True, False, True, False]


def test_tuples_are_compared_by_spelling() -> None:
    texts, numbers = pa.array(["a", "b"]), pa.array([0.0, 1.0])
    other = pa.array([-0.0, 2.0])
    equal = same(hash_tuples(SCHEME, [texts, numbers], 2), hash_tuples(SCHEME, [texts, other], 2))
    assert equal.tolist() == [True, False]
