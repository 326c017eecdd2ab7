"""A large cluster, 200 graphs with 2,000 queries: load and check, plan, and apply one change.

Once every schema and query has a text of its own, once all graphs share theirs, as tenants do. The
peer is PyYAML with its C part, reading a document of the same number of bytes as all files
together: it says how fast this machine reads text today.

A plan is that of a cluster where everything is applied, files included; its bar is 3 s. An apply
changes one query: it should touch that query, lock and ledger, and open no graph. The graphs are
only recorded, not made, because neither opens one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from omnigraph.cluster.commands.apply import apply
from omnigraph.cluster.commands.applying.next_ledger import Carried, next_ledger
from omnigraph.cluster.commands.applying.payloads import publish_payloads
from omnigraph.cluster.commands.frame import Report, Workplace, open_workplace
from omnigraph.cluster.commands.plan import plan
from omnigraph.cluster.compare.classify import classify
from omnigraph.cluster.compare.diff import diff
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import has_errors
from omnigraph.cluster.load_desired import load_desired
from omnigraph.cluster.stored.ledger import EMPTY, write_ledger

GRAPHS = 200
QUERIES_PER_GRAPH = 10
ROUNDS = 5
PLAN_MAX_S = 3.0

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
    with tempfile.TemporaryDirectory() as folder:
        write_cluster(Path(folder), is_shared=False)
        work = open_workplace(folder)
        _record(load_desired(folder), work)
        _print_plan(folder, work)
        _print_apply(Path(folder), work)


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


def _record(desired: Desired, work: Workplace) -> None:
    """Write what an apply would have written, without making the graphs."""
    changes = classify(diff(desired, EMPTY), policy_targets={})
    publish_payloads(work.root, desired, changes)
    done = Carried(changes, deleted={}, observed={}, pending=(), at="", actor=None)
    write_ledger(work.root, next_ledger(EMPTY, desired, done), base=None)


def _print_plan(folder: str, work: Workplace) -> None:
    rounds = []
    for _ in range(ROUNDS):
        start, busy = time.perf_counter(), time.process_time()
        desired = load_desired(folder)
        loaded = time.perf_counter()
        _must(plan(desired, work))
        end = time.perf_counter()
        rounds.append((end - start, loaded - start, time.process_time() - busy))
    took, loading, busy = (statistics.median(each) for each in zip(*rounds, strict=True))
    print("\n| plan | s | of which reading and checking files, s | processor, s | bar, s |")
    print("|---|---|---|---|---|")
    print(
        f"| {GRAPHS} graphs, {GRAPHS * QUERIES_PER_GRAPH} queries, nothing to do | {took:.2f}"
        f" | {loading:.2f} | {busy:.2f} | {PLAN_MAX_S:.0f} |"
    )


def _print_apply(here: Path, work: Workplace) -> None:
    changed = here / "q7" / "q3.gq"
    changed.write_text(changed.read_text().replace("limit 20", "limit 21"))
    objects, graphs = _Counted(work.root.objects), _Counted(work.graphs)
    counted = replace(work, root=replace(work.root, objects=objects), graphs=graphs)
    desired = load_desired(str(here))
    start = time.perf_counter()
    _must(apply(desired, counted))
    took = time.perf_counter() - start
    shown = ", ".join(f"{name} {count}" for name, count in sorted(objects.calls.items()))
    print("\n| apply | storage requests | operations on graphs | s without files |")
    print("|---|---|---|---|")
    print(
        f"| one query of {GRAPHS * QUERIES_PER_GRAPH} changed | {objects.calls.total()} ({shown})"
        f" | {graphs.calls.total()} | {took:.2f} |"
    )


class _Counted:
    """Counts the calls on an object store, or on graphs."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., object] = getattr(self._inner, name)

        def counted(*args: object, **options: object) -> object:
            self.calls[name] += 1
            return call(*args, **options)

        return counted


def _must(report: Report) -> None:
    if has_errors(report.diagnostics):
        raise SystemExit("\n".join(map(str, report.diagnostics)))
