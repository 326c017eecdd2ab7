"""Row equality against its definition."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.values.equality import equal_rows

FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), None])
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "F64": (pa.float64(), FLOATS),
    "F32": (pa.float32(), FLOATS),
    "I64": (pa.int64(), st.sampled_from([0, 1, None])),
    "Bool": (pa.bool_(), st.sampled_from([True, False, None])),
    "String": (pa.utf8(), st.sampled_from(["", "a", "A", "é", "e\u0301", None])),
    "Date": (pa.date32(), st.sampled_from([0, 1, None])),
    "list": (pa.list_(pa.float32()), st.none() | st.lists(FLOATS, max_size=2)),
    "Vector": (pa.list_(pa.float32(), 2), st.none() | st.lists(FLOATS, min_size=2, max_size=2)),
}


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_rows_are_equal_bit_by_bit(kind: str, data: st.DataObject) -> None:
    arrow, values = KINDS[kind]
    pairs = data.draw(st.lists(st.tuples(values, values), max_size=6))
    left, right = (pa.array([pair[side] for pair in pairs], arrow) for side in (0, 1))
    expected = [same(*pair) for pair in pairs]
    assert equal_rows(left, right).tolist() == expected
    assert equal_rows(left.slice(1), right.slice(1)).tolist() == expected[1:]


def test_columns_of_different_types_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        equal_rows(pa.array([1]), pa.array([1.0]))
