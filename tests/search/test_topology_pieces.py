"""A direction that is built in pieces has the arrays of one that is built at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.search.topology import csr as module
from omnigraph.search.topology.csr import build_csr
from omnigraph.search.topology.pieces import PieceBuilder, node_ranges


@pytest.mark.parametrize("packed_bits", [64, 0])
@given(
    pairs=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60),
    pieces=st.integers(1, 5),
    files=st.integers(1, 4),
    expected=st.integers(0, 80),
    seed=st.integers(0, 9),
    same_type=st.booleans(),
)
def test_pieces_put_together_are_the_whole(
    *,
    pairs: list[tuple[int, int]],
    pieces: int,
    files: int,
    expected: int,
    seed: int,
    same_type: bool,
    packed_bits: int,
) -> None:
    nodes = 13
    starts, ends = np.array(pairs, np.int32).reshape(-1, 2).T
    whole = build_csr(starts, ends, counts=(nodes, nodes), same_type=same_type)
    # Edges come in any order, and in several files.
    order = np.random.default_rng(seed).permutation(len(pairs))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PACKED_BITS", packed_bits)
        for within in node_ranges(nodes, pieces):
            counts = (nodes, nodes, len(pairs))
            builder = PieceBuilder(within, counts, edges_expected=expected, same_type=same_type)
            for rows in np.array_split(order, files):
                own = rows[(starts[rows] >= within.start) & (starts[rows] < within.stop)]
                builder.add(starts[own], ends[own], own)
            found.append(builder.csr())
    for name in ("neighbours", "edges", "loops"):
        joined = np.concatenate([getattr(piece, name) for piece in found])
        assert np.array_equal(joined, getattr(whole, name)), name
        assert joined.dtype == getattr(whole, name).dtype
    before = np.cumsum([0, *(piece.edge_count for piece in found)])
    indptr = [piece.indptr[:-1] + first for piece, first in zip(found, before, strict=False)]
    assert np.array_equal(np.concatenate([*indptr, before[-1:]]), whole.indptr)
    assert any(piece.has_parallel for piece in found) == whole.has_parallel
