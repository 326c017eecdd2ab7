"""Clusters: the time of a plan, and what an apply asks of storage.

| what | bar |
|---|---|
| a plan of 200 graphs and 2,000 queries, everything applied | ≤ 3 s |
| an apply that changes one query | touches that query, lock and ledger, and opens no graph |

Storage requests are calls on the objects of the root, by kind; operations on graphs are counted
beside them. Graphs are only recorded here, not made: neither a plan nor this apply opens one.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
QUERIES = 10
ROUNDS = 5
PLAN_MAX_S = 3.0
SCHEMA = "node Paper { doi: String @key  title: String? }\nedge Cites: Paper -> Paper\n"
QUERY = "query q%d($d: String) { match { $p: Paper { doi: $d } } return { $p.title } limit %d }\n"


def main() -> None:
    """Measure and print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _write(here)
        work = open_workplace(folder)
        _record(load_desired(folder), work)
        _print_plan(folder, work)
        _print_apply(here, work)


def _write(here: Path) -> None:
    graphs: dict[str, Any] = {}
    (here / "schema.pg").write_text(SCHEMA)
    for number in range(GRAPHS):
        (here / f"g{number}").mkdir()
        for query in range(QUERIES):
            (here / f"g{number}" / f"q{query}.gq").write_text(QUERY % (query, number + 1))
        graphs[f"g{number}"] = {"schema": "schema.pg", "queries": f"g{number}"}
    (here / "cluster.yaml").write_text(json.dumps({"version": 1, "graphs": graphs}))


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
    print("| plan | s | of which reading and checking files, s | processor, s | bar, s |")
    print("|---|---|---|---|---|")
    print(
        f"| {GRAPHS} graphs, {GRAPHS * QUERIES} queries, nothing to do | {took:.2f}"
        f" | {loading:.2f} | {busy:.2f} | {PLAN_MAX_S:.0f} |"
    )


def _print_apply(here: Path, work: Workplace) -> None:
    (here / "g7" / "q3.gq").write_text(QUERY % (3, 99))
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
        f"| one query of {GRAPHS * QUERIES} changed | {objects.calls.total()} ({shown})"
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
