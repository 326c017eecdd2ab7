"""Look-ups by text from memory give the rows that a scan gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.read.access.column_cache import USES_MIN
from omnigraph.read.access.text_lookup import build_text_lookup, text_hash, text_hashes

texts = st.one_of(st.text(max_size=8), st.sampled_from(["", "a", "é", "x" * 70, "x" * 70 + "y"]))
LOOKUP = "query q($k: String) { match { $n: N {key: $k}  $n.i > 0 } return { $n.i } }"


@given(st.lists(st.none() | texts), texts)
def test_a_look_up_finds_exactly_the_equal_texts(column: list[str | None], wanted: str) -> None:
    row_ids = np.arange(len(column), dtype=np.int64) * 3
    lookup = build_text_lookup(pa.array(column, pa.utf8()), row_ids)
    expected = [3 * position for position, text in enumerate(column) if text == wanted]
    assert lookup.find(wanted).tolist() == expected


@given(st.lists(texts), st.integers(0, 3))
def test_one_text_and_a_column_are_hashed_alike(column: list[str], skipped: int) -> None:
    array = pa.array(column, pa.utf8()).slice(skipped)
    assert text_hashes(array).tolist() == [text_hash(text) for text in column[skipped:]]


def test_a_column_that_is_asked_for_often_is_answered_from_memory(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", "node N { key: String @key  i: I32? }", durability="process")
    graph.load(b'{"type": "N", "data": {"key": "a", "i": 1}}', mode="append")

    def answer(key: str) -> tuple[list[dict[str, object]], bool]:
        found = graph.query(LOOKUP, params={"k": key}, profile=True)
        scan = found.measured[0].details
        return found.json_rows(), "resident" in scan

    answers = [answer("a") for _ in range(USES_MIN + 1)]
    assert all(rows == [{"n.i": 1}] for rows, _ in answers)
    in_memory = [resident for _, resident in answers]
    # The planner may have asked for the column too, to see how many rows it selects.
    assert in_memory == sorted(in_memory)
    assert (in_memory[0], in_memory[-1]) == (False, True)
    assert answer("z") == ([], True)
    graph.load(b'{"type": "N", "data": {"key": "z", "i": 2}}', mode="append")
    assert answer("z") == ([{"n.i": 2}], True)


def test_ids_that_stay_in_memory_belong_to_one_version(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", "node N { key: String @key  i: I32? }", durability="process")
    graph.load(b'{"type": "N", "data": {"key": "a"}}', mode="append")
    text = "query q() { match { $n: N } return { $n } order { $n.key } }"
    for _ in range(USES_MIN + 2):
        assert graph.query(text).json_rows() == [{"n": "a"}]
    graph.load(b'{"type": "N", "data": {"key": "b"}}', mode="append")
    graph.mutate('query gone() { delete N where key = "a" }')
    assert graph.query(text).json_rows() == [{"n": "b"}]
