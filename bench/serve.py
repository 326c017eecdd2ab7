"""The server against calls in process, and against a route that does nothing.

| part (`--only`) | what | peer in the same run | bar |
|---|---|---|---|
| `latency` | a point lookup over HTTP, added latency | the same lookup in process | p50 ≤ 2 ms |
| `reads` | trivial reads per second, 16 connections | an empty FastAPI route | ≥ 0.5 |
| `export` | an export as Arrow, and as lines | the same export in process | ≥ 0.7 |
| `workers` | reads per second of two workers | of one worker | ≥ 1.8 |
| `memory` | 64 clients, reads and writes, `--seconds` | none | only 200, 429, 503; flat |

A trivial read is a query with a body, a plan and a row of a table: a look-up of one node by its
key. A route that only says that the server lives would be faster than the empty one of FastAPI.

Both sides take turns. The clients (`bench.ask`) are a process of their own that only sends prepared
bytes and counts answers. On a machine with two cores it still competes with two workers. The
processor time that a server takes for one answer hardly depends on what else runs; it is printed
too. The ratio of processor times is the ratio of the rates where nothing else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph import Graph

PEOPLE = 100_000
LOOKUPS = 500
RATE_S = 4.0
TURNS = 3
MARKS = 10
PARTS = ("latency", "reads", "export", "workers", "memory")
SCHEMA = "node Person { name: String @key   age: I32? }\nedge Knows: Person -> Person"
LOOKUP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
TRIVIAL = 'query q() { match { $p: Person { name: "p7" } } return { $p.age } }'
_ARROW = "application/vnd.apache.arrow.stream"
FASTAPI = """
import sys, socket, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/empty")
async def empty(): return {"ok": True}
listener = socket.socket(); listener.bind(("127.0.0.1", 0))
print(f"LISTEN=127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])
"""


def main() -> None:
    """Run all of it and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    wanted = options.only or PARTS
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "people.omni"
        _fill(root, options.people)
        tables = {
            "latency": _latency,
            "reads": _throughput,
            "export": _export,
            "workers": _workers,
        }
        rows = [row for name, table in tables.items() if name in wanted for row in table(root)]
        if rows:
            print("| what | ours | peer | ratio | bar |\n|---|---|---|---|---|")
            print("\n".join("| " + " | ".join(row) + " |" for row in rows), "\n")
        if "memory" in wanted:
            _mixed(root, options.seconds)


def _fill(root: Path, people: int) -> None:
    import pyarrow as pa

    names = [f"p{n}" for n in range(people)]
    with Graph.init(root, SCHEMA, durability="process") as graph:
        table = pa.table({"name": names, "age": pa.array(range(people), pa.int32())})
        graph.load_tables(nodes={"Person": table}, mode="append")
        graph.optimize()


# -- processes ------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(command: list[str], prefix: str) -> Iterator[tuple[str, int, subprocess.Popen[str]]]:
    """Start a server and yield its host, its port and its process."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(rf"{prefix}=(.+):(\d+)", line)
        assert found is not None, line
        yield found[1], int(found[2]), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def serving(
    root: Path, workers: int = 1
) -> contextlib.AbstractContextManager[tuple[str, int, subprocess.Popen[str]]]:
    """Start omnigraph on a graph."""
    command = [
        sys.executable,
        "-c",
        "from omnigraph.cli import main; main()",
        "serve",
        "--store",
        str(root),
    ]
    command += ["--bind", "127.0.0.1:0", "--unauthenticated", "--workers", str(workers)]
    return started(command, "OMNIGRAPH_LISTEN_ADDR")


# -- clients --------------------------------------------------------------------------------------


def request(path: str, body: object, host: str, *, accept: str = "*/*") -> bytes:
    """Return the bytes of a POST request."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer that says its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length is not None, head
    return int(head[9:12]), await reader.readexactly(int(length[1]))


@dataclass(frozen=True)
class Rate:
    """How fast a server answered."""

    per_s: float
    """Answers per second."""
    busy_us: float
    """Processor time of the server for one answer."""


def rate(host: str, port: int, pids: Sequence[int], data: bytes) -> Rate:
    """Ask for some seconds, from a process of its own."""
    used = _processor_s(pids)
    command = [sys.executable, "-m", "bench.ask", host, str(port), str(RATE_S)]
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
    count, seconds = done.stdout.split()
    return Rate(int(count) / float(seconds), (_processor_s(pids) - used) / int(count) * 1e6)


def _processor_s(pids: Sequence[int]) -> float:
    """Return the processor seconds that processes have taken until now."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def _family(process: subprocess.Popen[str]) -> list[int]:
    """Return a process and its children."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [process.pid, *map(int, listed.split())]


# -- measurements ---------------------------------------------------------------------------------


def _latency(root: Path) -> list[tuple[str, ...]]:
    import httpx2

    names = [f"p{random.randrange(1000)}" for _ in range(LOOKUPS)]
    with Graph.open(root, mode="read_only") as graph:
        here = [_timed(lambda n=n: graph.query(LOOKUP, params={"n": n})) for n in names]
    with serving(root) as (host, port, _), httpx2.Client() as client:
        url = f"http://{host}:{port}/graphs/people/query"
        there = [
            _timed(lambda n=n: client.post(url, json={"query": LOOKUP, "params": {"n": n}}))
            for n in names
        ]
    ours, peer = statistics.median(there), statistics.median(here)
    added = f"+{(ours - peer) * 1e3:.2f} ms"
    return [("point lookup p50", f"{ours * 1e3:.2f} ms", f"{peer * 1e3:.2f} ms", added, "+2 ms")]


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _throughput(root: Path) -> list[tuple[str, ...]]:
    with (
        serving(root) as (host, port, process),
        started([sys.executable, "-c", FASTAPI], "LISTEN") as (peer_host, peer_port, peer),
    ):
        data = request("/graphs/people/query", {"query": TRIVIAL}, f"{host}:{port}")
        empty = request("/empty", {}, f"{peer_host}:{peer_port}")
        turns = [
            (
                rate(host, port, [process.pid], data),
                rate(peer_host, peer_port, [peer.pid], empty),
            )
            for _ in range(TURNS)
        ]
    return _compared("trivial reads, 16 connections", turns, "≥ 0.5")


def _compared(what: str, turns: Sequence[tuple[Rate, Rate]], bar: str) -> list[tuple[str, ...]]:
    ours, peer, ratio = (
        statistics.median(found)
        for found in zip(*((a.per_s, b.per_s, a.per_s / b.per_s) for a, b in turns), strict=True)
    )
    busy, peer_busy, less = (
        statistics.median(found)
        for found in zip(
            *((a.busy_us, b.busy_us, b.busy_us / a.busy_us) for a, b in turns), strict=True
        )
    )
    return [
        (what, f"{ours:.0f}/s", f"{peer:.0f}/s", f"{ratio:.2f}", bar),
        ("processor time of one", f"{busy:.0f} µs", f"{peer_busy:.0f} µs", f"{less:.2f}", ""),
    ]


def _export(root: Path) -> list[tuple[str, ...]]:
    with (
        Graph.open(root, mode="read_only") as graph,
        serving(root) as (host, port, _),
    ):

        def lines() -> None:
            for _ in graph.export_lines():
                pass

        def batches() -> None:
            for _, found in graph.export_batches():
                for _ in found:
                    pass

        forms = (("Arrow", batches, _ARROW), ("lines", lines, "application/x-ndjson"))
        return [_exported(host, port, *form) for form in forms]


def _exported(
    host: str, port: int, name: str, here: Callable[[], None], accept: str
) -> tuple[str, ...]:
    body = request("/graphs/people/export", {}, f"{host}:{port}", accept=accept)
    turns = [(_timed(lambda: _fetch(host, port, body)), _timed(here)) for _ in range(2 * TURNS)]
    theirs, ours = (statistics.median(found) for found in zip(*turns, strict=True))
    ratio = statistics.median(b / a for a, b in turns)
    return f"export as {name}", f"{theirs:.3f} s", f"{ours:.3f} s", f"{ratio:.2f}", "≥ 0.7"


def _fetch(host: str, port: int, body: bytes) -> None:
    """Read an answer in chunks to its end."""
    with socket.create_connection((host, port)) as connection:
        connection.sendall(body)
        tail = b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            received = connection.recv(1 << 20)
            assert received, "the server closed the connection"
            tail = (tail + received)[-16:]


def _workers(root: Path) -> list[tuple[str, ...]]:
    with serving(root, 1) as one, serving(root, 2) as two:
        turns = []
        for _ in range(TURNS):
            data = [
                request("/graphs/people/query", {"query": TRIVIAL}, f"{host}:{port}")
                for host, port, _ in (two, one)
            ]
            turns.append(
                (
                    rate(*two[:2], _family(two[2]), data[0]),
                    rate(*one[:2], _family(one[2]), data[1]),
                )
            )
    return _compared("two workers", turns, "≥ 1.8")


def _mixed(root: Path, seconds: float) -> None:
    with serving(root) as (host, port, process):
        statuses, memory = asyncio.run(_mixed_clients(host, port, process.pid, seconds))
    print(f"64 clients, one write in eight, {seconds:.0f} s: answers by status {dict(statuses)};")
    marks = ", ".join(f"{mib:.0f}" for mib in memory)
    print(f"memory in MiB, every {seconds / MARKS:.0f} s: {marks}")


async def _mixed_clients(
    host: str, port: int, pid: int, seconds: float
) -> tuple[Counter[int], list[float]]:
    statuses: Counter[int] = Counter()
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        asked = 0
        while time.perf_counter() < end:
            asked += 1
            if asked % 8 == 0:
                text = "query q($n: String) { insert Person { name: $n } }"
                body = {"query": text, "params": {"n": f"new-{number}-{asked}"}}
                writer.write(request("/graphs/people/mutate", body, host))
            else:
                body = {"query": LOOKUP, "params": {"n": f"p{random.randrange(1000)}"}}
                writer.write(request("/graphs/people/query", body, host))
            status, _ = await answer(reader)
            statuses[status] += 1
        writer.close()

    async def watch() -> list[float]:
        found = []
        for _ in range(MARKS):
            await asyncio.sleep(seconds / MARKS)
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            found.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        return found

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(client(number) for number in range(64)))
    return statuses, await watching


if __name__ == "__main__":
    main()
