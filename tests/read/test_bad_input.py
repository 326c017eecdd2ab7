"""Queries that cost too much or make no sense: a typed error, soon, and memory stays bounded."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE
from omnigraph.read.limits import QueryCancelledError
from support import costly_queries
from support.looks import SetAfter

SCHEMA = """\
node N { key: String @key  text: String?  body: String? @index  vec: Vector(8)? }
edge Link: N -> N
"""
NODES = 2_000
MIB = 2**20
MEMORY_MAX = 64 * MIB
GROWTH_MAX = 512 * MIB
"""What a query may need in addition to its rows: libraries, caches, an index in memory."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A hub with edges to and from every other node."""
    root = tmp_path_factory.mktemp("bad") / "g"
    keys = [f"n{number}" for number in range(NODES)]
    numbers = np.random.default_rng(1).normal(size=NODES * 8).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 8)
    texts = [f"red ships {number}" for number in range(NODES)]
    nodes = pa.table({"key": keys, "text": texts, "body": texts, "vec": vectors})
    ends = (keys[:1] * (NODES - 1) + keys[1:], keys[1:] + keys[:1] * (NODES - 1))
    edges = pa.table({"from": ends[0], "to": ends[1]})
    with Graph.init(root, SCHEMA, durability="process", auto_optimize=False) as made:
        made.load_tables(nodes={"N": nodes}, edges={"Link": edges}, mode="append")
        made.ensure_indices()
        yield made


def by_text(clause: str) -> str:
    return f"query q($s: String) {{ match {{ $a: N  {clause} }} return {{ $a }} }}"


def ranked(order: str, kind: str) -> str:
    head = f"query q($s: {kind}) {{ match {{ $a: N }} return {{ $a }}"
    return f"{head} order {{ {order} }} limit 5 }}"


CROSS = "  ".join(f"$v{number}: N" for number in range(4))
NEEDLE = {"s": {"repeat": "(a+)+$ w# ", "times": 70_000}}
ONE_WORD = {"s": {"repeat": "x", "times": 1_000_000}}
LIMITS = {"memory_max": MEMORY_MAX}

CASES: dict[str, tuple[dict[str, Any], object]] = {
    "a trillion rows": (
        {
            "query": f"query q() {{ match {{ {CROSS} }} return {{ $v0 }} limit 1 }}",
            "limits": LIMITS,
        },
        "OG-QUERY-MEMORY",
    ),
    "a trillion rows, counted": (
        {
            "query": f"query q() {{ match {{ {CROSS} }} return {{ count($v0) as n }} }}",
            "limits": LIMITS,
        },
        "OG-QUERY-MEMORY",
    ),
    "twenty hops from everywhere": (
        {
            "query": "query q() { match { $a: N  $a link{1,20} $b } return { $a, $b } }",
            "limits": {"memory_max": 16 * MIB},
        },
        "OG-QUERY-MEMORY",
    ),
    "too late": (
        {
            "query": "query q() { match { $a: N  $a link{1,20} $b } return { $a, $b } }",
            "limits": {"timeout_s": 0.0},
        },
        "OG-QUERY-TIMEOUT",
    ),
    "contains": ({"query": by_text("$a.text contains $s"), "params": NEEDLE}, 0),
    "starts with": ({"query": by_text("$a.text starts_with $s"), "params": NEEDLE}, 0),
    "equal": ({"query": by_text("$a.key = $s"), "params": NEEDLE}, 0),
    "search": ({"query": by_text("search($a.body, $s)"), "params": NEEDLE}, 0),
    "search without an index": ({"query": by_text("search($a.text, $s)"), "params": NEEDLE}, 0),
    "phrase": ({"query": by_text("match_text($a.body, $s)"), "params": NEEDLE}, 0),
    "one long word": ({"query": by_text("search($a.body, $s)"), "params": ONE_WORD}, 0),
    "one long word, fuzzy": ({"query": by_text("fuzzy($a.body, $s)"), "params": ONE_WORD}, 0),
    "fuzzy": ({"query": by_text("fuzzy($a.body, $s)"), "params": NEEDLE}, "OG-QUERY-TEXT"),
    "bm25": ({"query": ranked("bm25($a.body, $s)", "String"), "params": NEEDLE}, 0),
    "a short vector": (
        {"query": ranked("nearest($a.vec, $s)", "Vector(8)"), "params": {"s": [1.0]}},
        "OG-PARAMS",
    ),
    "NaN in a vector": (
        {"query": ranked("nearest($a.vec, $s)", "Vector(8)"), "params": {"s": [float("nan")] * 8}},
        "OG-PARAMS",
    ),
}


def test_costly_queries_end_with_a_typed_error_and_bounded_memory(graph: Graph) -> None:
    cases = json.dumps([case for case, _ in CASES.values()])
    script = str(Path(costly_queries.__file__))
    run = subprocess.run(
        [sys.executable, script, graph.uri, cases], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    results = dict(zip(CASES, json.loads(run.stdout), strict=True))
    assert {name: result["found"] for name, result in results.items()} == {
        name: expected for name, (_, expected) in CASES.items()
    }
    grown = {name: result["grown"] // MIB for name, result in results.items()}
    assert max(grown.values()) * MIB <= GROWTH_MAX, grown


@pytest.mark.parametrize("mode", ["indexed", "csr"])
def test_a_query_can_be_cancelled_at_each_of_its_steps(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, mode)
    text = (
        'query q() { match { $a: N {key: "n7"}  search($a.body, "ships")  $a link{1,3} $b'
        '  not { $b.text contains "9" } } return { count($b) as n } }'
    )
    expected = graph.query(text).json_rows()
    for looks in itertools.count():
        event = SetAfter(looks)
        try:
            rows = graph.query(text, cancelled=event).json_rows()
        except QueryCancelledError:
            assert event.looks == looks + 1
        else:
            break
    # What is known from earlier queries needs no look any more: that leaves the steps themselves.
    assert looks >= 6
    assert rows == expected
