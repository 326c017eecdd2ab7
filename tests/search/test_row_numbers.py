"""Dense ids and stable row ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.search.topology.row_numbers import Numbering, numbering_of

ROW_IDS = st.lists(st.integers(0, 60) | st.integers(2**32 - 3, 2**32 + 3), unique=True, max_size=30)


def numbered(row_ids: list[int]) -> Numbering:
    return numbering_of(np.array(sorted(row_ids), np.uint64))


@given(ROW_IDS)
def test_dense_ids_are_positions_in_row_id_order(row_ids: list[int]) -> None:
    numbering = numbered(row_ids)
    expected = sorted(row_ids)
    assert numbering.row_ids().tolist() == expected
    backwards = np.arange(len(row_ids), dtype=np.int32)[::-1]
    assert numbering.row_ids(backwards).tolist() == expected[::-1]
    assert numbering.dense(np.array(expected, np.uint64)).tolist() == list(range(len(row_ids)))


@given(ROW_IDS, ROW_IDS)
def test_row_ids_of_no_live_row_have_no_dense_id(row_ids: list[int], asked: list[int]) -> None:
    order = sorted(row_ids)
    expected = [order.index(row_id) if row_id in order else -1 for row_id in asked]
    assert numbered(row_ids).dense(pa.array(asked, pa.uint64())).tolist() == expected


@given(ROW_IDS, ROW_IDS)
def test_a_prefix_keeps_every_dense_id(first: list[int], second: list[int]) -> None:
    left, right = sorted(first), sorted(second)
    assert numbered(first).is_prefix_of(numbered(second)) == (right[: len(left)] == left)


def test_row_ids_without_gaps_need_no_array() -> None:
    assert numbering_of(np.arange(7, 1_000_007, dtype=np.uint64)).nbytes == 0


def test_small_row_ids_are_kept_in_four_bytes() -> None:
    assert numbered([1, 5, 9]).nbytes == 12
    assert numbered([1, 5, 2**32]).nbytes == 24
