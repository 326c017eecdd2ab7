"""How long a large cluster takes to load and check: 200 graphs with 2,000 queries.

Once every schema and query has a text of its own, once all graphs share theirs, as tenants do. The
peer is PyYAML with its C part, reading a document of the same number of bytes as all files
together: it says how fast this machine reads text today.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from omnigraph.cluster.load_desired import load_desired

GRAPHS = 200
QUERIES_PER_GRAPH = 10
ROUNDS = 5

_SCHEMA = """\
node Paper<n> {
  doi: String @key
<properties>
}
node Author<n> { name: String @key  age: I32? }
edge Wrote<n>: Author<n> -> Paper<n> { year: I32? }
"""
_QUERY = """\
query q<q>($name: String, $year: I32) @description("Papers of an author") {
  match {
    $a: Author<n> { name: $name }
    $a wrote<n> $p
    $p.p<q> = "v"
  }
  return { $p.doi, $p.p1 as first, $a.age }
  order { $p.doi }
  limit 20
}
"""


def write_cluster(folder: Path, *, is_shared: bool) -> int:
    """Write a cluster and return how many bytes its files have."""
    properties = "\n".join(f"  p{index}: String?" for index in range(QUERIES_PER_GRAPH))
    texts = {"cluster.yaml": "version: 1\ngraphs:\n"}
    for graph in range(GRAPHS):
        number = "" if is_shared else str(graph)
        texts["cluster.yaml"] += f"  g{graph}: {{schema: g{graph}.pg, queries: q{graph}/}}\n"
        schema = _SCHEMA.replace("<properties>", properties)
        texts[f"g{graph}.pg"] = schema.replace("<n>", number)
        for query in range(QUERIES_PER_GRAPH):
            text = _QUERY.replace("<q>", str(query)).replace("<n>", number)
            texts[f"q{graph}/q{query}.gq"] = text
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return sum(map(len, texts.values()))


def main() -> None:
    """Print the table."""
    print("| cluster | load and check, s | PyYAML on as many bytes, s | ratio |")
    print("|---|---|---|---|")
    for name, is_shared in (("every text is different", False), ("all graphs share texts", True)):
        with tempfile.TemporaryDirectory() as folder:
            size = write_cluster(Path(folder), is_shared=is_shared)
            ours, peer = _compared(folder, size)
        print(f"| {name} | {ours:.2f} | {peer:.2f} | {ours / peer:.1f} |")


def _compared(folder: str, size: int) -> tuple[float, float]:
    line = "- {name: papers, file: queries/papers.gq}\n"
    text = line * (size // len(line))
    ours, peer = [], []
    for _ in range(ROUNDS):
        ours.append(_seconds(lambda: load_desired(folder).is_valid or _broken()))
        peer.append(_seconds(lambda: yaml.load(text, Loader=yaml.CSafeLoader)))
    return statistics.median(ours), statistics.median(peer)


def _broken() -> None:
    raise AssertionError("the cluster of the benchmark is not valid")


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
