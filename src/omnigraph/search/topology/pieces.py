"""A topology in pieces, for builders none of which holds all of its edges.

A direction is divided by ranges of the nodes that edges start from: pieces of neighbouring ranges,
put one after another, are the arrays of the whole direction.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from omnigraph.search.topology.csr import Csr, Ints, build_csr, id_type, sorted_distinct


def node_ranges(count: int, pieces: int) -> list[range]:
    """Divide the dense ids of a node type among pieces.

    >>> node_ranges(5, 2)
    [range(0, 2), range(2, 5)]
    """
    bounds = [number * count // pieces for number in range(pieces + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


def csr_piece(
    starts: Ints,
    ends: Ints,
    edges: Ints,
    *,
    within: range,
    counts: tuple[int, int],
    edge_count: int,
    same_type: bool,
) -> Csr:
    """Arrange all edges that start in a range of nodes, given by dense ids in any order.

    `counts` are the numbers of nodes at either end, `edge_count` that of all edges: they decide how
    wide the ids are. `indptr` begins at the first node of the range with 0.
    """
    if len(edges) > 1 and not (edges[1:] > edges[:-1]).all():
        order = np.argsort(edges)
        starts, ends, edges = starts[order], ends[order], edges[order]
    made = build_csr(
        starts - within.start,
        ends.astype(id_type(counts[1]), copy=False),
        counts=(len(within), counts[1]),
        edges=edges,
        same_type=False,
    )
    loops = sorted_distinct(starts[starts == ends]) if same_type else starts[:0]
    return Csr(
        made.indptr,
        made.neighbours,
        made.edges.astype(id_type(edge_count), copy=False),
        loops.astype(id_type(counts[0]), copy=False),
        made.has_parallel,
    )
