"""Readers in parallel with a writer and maintenance: every answer belongs to exactly one commit.

Each commit moves money between accounts, counts itself in a ledger and adds one edge. So in every
commit the sum of all balances is the same, and the ledger says how many edges there are.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest

from omnigraph.graph import Graph

SCHEMA = """\
node Account { key: String @key  balance: I64  memo: String? @index }
node Ledger { key: String @key  transfers: I64 }
edge Paid: Account -> Account { amount: I64 }
"""
ACCOUNTS = 50
START = 1_000
READERS = 16

SUMS = """\
query sums() {
    match { $a: Account  $l: Ledger }
    return { sum($a.balance) as total, count($a) as accounts, max($l.transfers) as transfers }
}
"""
EDGES = """\
query edges() {
    match { $l: Ledger  $a: Account  $a $p:paid $b }
    return { count($p.amount) as edges, max($l.transfers) as transfers }
}
"""
TEXTS = """\
query texts() {
    match { $l: Ledger  $a: Account  search($a.memo, "payer") }
    return { count($a) as payers, max($l.transfers) as transfers }
}
"""
MOVE = """\
query move($from: String, $to: String, $less: I64, $more: I64, $amount: I64, $n: I64) {
    update Account set { balance: $less, memo: "payer" } where key = $from
    update Account set { balance: $more, memo: "receiver" } where key = $to
    update Ledger set { transfers: $n } where key = "all"
    insert Paid { from: $from, to: $to, amount: $amount }
}
"""


@dataclass
class Bank:
    """The graph, what its writer knows, and what its readers saw."""

    graph: Graph
    balances: list[int] = field(default_factory=lambda: [START] * ACCOUNTS)
    payers: list[bool] = field(default_factory=lambda: [False] * ACCOUNTS)
    payers_after: dict[int, int] = field(default_factory=lambda: {0: 0})
    """How many accounts were last on the paying side, by the number of transfers."""
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def write(self, random: Random) -> None:
        number = max(self.payers_after) + 1
        source, target = random.sample(range(ACCOUNTS), 2)
        amount = random.randint(1, 50)
        self.balances[source] -= amount
        self.balances[target] += amount
        self.payers[source], self.payers[target] = True, False
        # Known before anybody can see it.
        self.payers_after[number] = sum(self.payers)
        self.graph.mutate(
            MOVE,
            params={
                "from": f"a{source}",
                "to": f"a{target}",
                "less": self.balances[source],
                "more": self.balances[target],
                "amount": amount,
                "n": number,
            },
        )

    def read(self, random: Random) -> None:
        text = random.choice((SUMS, EDGES, TEXTS))
        start = time.perf_counter()
        result = self.graph.query(text)
        elapsed = time.perf_counter() - start
        rows = result.json_rows()
        self.check(result.query_name, rows)
        key = (result.query_name, result.graph_commit_id or "")
        with self.guard:
            self.seconds.append(elapsed)
            # Two answers of one commit are the same answer.
            assert self.answers.setdefault(key, json.dumps(rows)) == json.dumps(rows)

    def check(self, name: str, rows: list[dict[str, object]]) -> None:
        [row] = rows
        if name == "sums":
            assert (row["total"], row["accounts"]) == (float(START * ACCOUNTS), ACCOUNTS)
        elif row["transfers"] is None:
            assert 0 in (row.get("edges"), row.get("payers"))
        elif name == "edges":
            assert row["edges"] == row["transfers"]
        else:
            assert row["payers"] == self.payers_after[int(str(row["transfers"]))]

    def until_stopped(self, act: Callable[[Random], None], seed: int) -> int:
        random = Random(seed)
        count = 0
        try:
            while not self.stopped.is_set():
                act(random)
                count += 1
        finally:
            # One failure ends all of them.
            self.stopped.set()
        return count

    def optimize(self, random: Random) -> None:
        self.graph.optimize()
        self.stopped.wait(random.uniform(0.05, 0.3))


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with Graph.init(tmp_path / "g", SCHEMA, durability="process") as graph:
        rows = [
            {"type": "Account", "data": {"key": f"a{number}", "balance": START}}
            for number in range(ACCOUNTS)
        ]
        rows.append({"type": "Ledger", "data": {"key": "all", "transfers": 0}})
        graph.load("\n".join(json.dumps(row) for row in rows).encode(), mode="append")
        yield Bank(graph)


@pytest.mark.parametrize(
    "duration_s",
    [pytest.param(5, id="5s"), pytest.param(120, id="120s", marks=pytest.mark.slow)],
)
def test_every_answer_belongs_to_exactly_one_commit(bank: Bank, duration_s: int) -> None:
    with ThreadPoolExecutor(READERS + 2) as pool:
        writer = pool.submit(bank.until_stopped, bank.write, 1)
        maintenance = pool.submit(bank.until_stopped, bank.optimize, 2)
        readers = [pool.submit(bank.until_stopped, bank.read, 10 + n) for n in range(READERS)]
        bank.stopped.wait(duration_s)
        bank.stopped.set()
        commits, runs = writer.result(), maintenance.result()
        reads = sum(reader.result() for reader in readers)
    assert commits >= 1
    assert runs >= 1
    assert reads >= READERS
    # The last state is the writer's.
    [row] = bank.graph.query(EDGES).json_rows()
    assert row["edges"] == commits
    p50, p95 = np.quantile(bank.seconds, (0.5, 0.95)) * 1000
    sys.stdout.write(
        f"\n{duration_s} s: {reads} reads by {READERS} threads, {commits} commits,"
        f" {runs} optimizes; p50 {p50:.1f} ms, p95 {p95:.1f} ms\n"
    )
