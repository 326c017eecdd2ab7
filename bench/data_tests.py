"""A hundred tests on one fixture against one load and a hundred queries of the same graph.

Both sides make a graph without flushes, load the same rows and ask the same questions. Ours also
compares every answer; reading and checking the test file is shown beside. Rounds alternate. The bar
is a ratio of 1.5 at the median.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from omnigraph import Graph
from omnigraph.pipelines.data_tests.model import TestFile
from omnigraph.pipelines.data_tests.read import load_test_file
from omnigraph.pipelines.data_tests.run import run_tests

PAPERS = 500
TESTS = 100
ROUNDS = 5
BAR = 1.5

SCHEMA = "node Paper { doi: String @key  title: String }\nedge Cites: Paper -> Paper\n"
QUERY = """\
query cited($doi: String) {
    match { $a: Paper { doi: $doi }  $a cites $b }
    return { $b.doi, $b.title }
}
"""


def records() -> list[dict[str, object]]:
    """Return papers of which each cites the two before it."""
    nodes = [{"type": "Paper", "data": {"doi": f"p{n}", "title": f"T{n}"}} for n in range(PAPERS)]
    edges = [
        {"edge": "Cites", "from": f"p{n}", "to": f"p{n - back}"}
        for n in range(2, PAPERS)
        for back in (1, 2)
    ]
    return [*nodes, *edges]


def write_file(folder: Path) -> Path:
    """Write a test file: JSON is YAML."""
    (folder / "s.pg").write_text(SCHEMA)
    (folder / "q.gq").write_text(QUERY)
    tests = [
        {
            "name": f"test {n}",
            "fixture": "papers",
            "query": "cited",
            "params": {"doi": f"p{n}"},
            "expect": {"rows": [{"b.doi": f"p{n - 1}"}, {"b.doi": f"p{n - 2}"}]},
        }
        for n in range(2, TESTS + 2)
    ]
    shape = {"schema": "s.pg", "queries": ["q.gq"], "fixtures": {"papers": records()}}
    path = folder / "bench.test.yaml"
    path.write_text(json.dumps(shape | {"tests": tests}))
    return path


def ours(file: TestFile) -> float:
    """Run all tests; return the seconds."""
    began = time.perf_counter()
    report = run_tests([file])
    seconds = time.perf_counter() - began
    assert report.count("passed") == TESTS
    return seconds


def peer(lines: bytes) -> float:
    """Load once and ask a hundred times; return the seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = {"checksums": False, "auto_optimize": False}
        with Graph.init(f"{folder}/g", SCHEMA, durability="process", **options) as graph:
            graph.load(lines, mode="append", engine="local")
            for n in range(2, TESTS + 2):
                answer = graph.query(QUERY, params={"doi": f"p{n}"})
                assert len(answer.json_rows()) == 2
    return time.perf_counter() - began


def main() -> None:
    """Measure, and print a table."""
    lines = "".join(json.dumps(one) + "\n" for one in records()).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder))
        began = time.perf_counter()
        file = load_test_file(path)
        reading = time.perf_counter() - began
        ours(file), peer(lines)
        rounds = [(ours(file), peer(lines)) for _ in range(ROUNDS)]
    ratio = statistics.median(own / other for own, other in rounds)
    own, other = (statistics.median(one) for one in zip(*rounds, strict=True))
    print(f"| {TESTS} tests, s | load and {TESTS} queries, s | ratio | bar | reading the file, s |")
    print("|---|---|---|---|---|")
    print(f"| {own:.3f} | {other:.3f} | {ratio:.2f} | {BAR} | {reading:.3f} |")
