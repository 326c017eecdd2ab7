"""What opening a graph costs in requests to an object store."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from support.places import Place
from support.s3 import S3Server

OPEN_MAX = {"read_only": 5, "read_write": 18}
FIRST_ANSWER_MAX = 3
"""One look at the head of the branch, and the version of the one table that is read."""


@pytest.mark.parametrize("mode", OPEN_MAX)
@pytest.mark.parametrize("types", [1, 30])
def test_opening_costs_the_same_however_many_types_there_are(
    s3: S3Server, s3_place: Place, mode: str, types: int
) -> None:
    text = "\n".join(f"node T{number} {{ name: String @key }}" for number in range(types))
    Graph.init(s3_place.uri, text, storage_options=s3_place.options).close()
    with s3.requests() as opened:
        graph = Graph.open(s3_place.uri, mode=mode, storage_options=s3_place.options)
    with s3.requests() as asked:
        assert len(graph.query("match { $t: T0 } return { $t.name }")) == 0
    graph.close()
    assert len(opened) <= OPEN_MAX[mode]
    assert len(asked) <= FIRST_ANSWER_MAX
