"""The server against calls in process, and against a route that does nothing.

| what | peer in the same run | bar |
|---|---|---|
| a point lookup over HTTP, added latency | the same lookup in process | p50 ≤ 2 ms |
| trivial reads per second, 16 connections | an empty FastAPI route, same HTTP server | ≥ 0.5 |
| an export as lines | the same export in process | ≥ 0.7 |
| reads per second of two workers | of one worker | ≥ 1.8 |
| 64 clients, reads and writes, `--seconds` | none | no answer but 200, 429 and 503; memory flat |

The clients are one process of their own that sends prepared bytes; on a machine with two cores it
takes a core, so rates are those of a server that has what is left.
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
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from omnigraph import Graph

PEOPLE = 100_000
LOOKUPS = 500
CONNECTIONS = 16
RATE_S = 4.0
SCHEMA = "node Person { name: String @key   age: I32? }\nedge Knows: Person -> Person"
LOOKUP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
TRIVIAL = 'query q() { match { $p: Person { name: "p7" } } return { $p.age } }'
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "people.omni"
        _fill(root, options.people)
        rows = [*_latency(root), *_throughput(root), *_export(root), *_workers(root)]
        print("| what | ours | peer | ratio | bar |\n|---|---|---|---|---|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
        print()
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


def request(path: str, body: object, host: str) -> bytes:
    """Return the bytes of a POST request."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer that says its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length is not None, head
    return int(head[9:12]), await reader.readexactly(int(length[1]))


async def rate(host: str, port: int, data: bytes, connections: int = CONNECTIONS) -> float:
    """Return answers per second of clients that ask one after the other."""
    done = 0
    end = time.perf_counter() + RATE_S

    async def client() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(host, port)
        while time.perf_counter() < end:
            writer.write(data)
            status, _ = await answer(reader)
            assert status == 200, status
            done += 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return done / (time.perf_counter() - began)


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
    with serving(root) as (host, port, _):
        data = request("/graphs/people/query", {"query": TRIVIAL}, f"{host}:{port}")
        ours = asyncio.run(rate(host, port, data))
    with started([sys.executable, "-c", FASTAPI], "LISTEN") as (host, port, _):
        time.sleep(1)
        peer = asyncio.run(rate(host, port, request("/empty", {}, f"{host}:{port}")))
    shown = (f"{ours:.0f}/s", f"{peer:.0f}/s", f"{ours / peer:.2f}", "≥ 0.5")
    return [("trivial reads, 16 connections", *shown)]


def _export(root: Path) -> list[tuple[str, ...]]:
    import httpx2

    with Graph.open(root, mode="read_only") as graph:
        here = _timed(lambda: sum(len(line) for line in graph.export_lines()))
    with serving(root) as (host, port, _), httpx2.Client(timeout=None) as client:
        url = f"http://{host}:{port}/graphs/people/export"

        def fetch() -> None:
            with client.stream("POST", url, json={}) as found:
                for _ in found.iter_raw():
                    pass

        there = _timed(fetch)
    shown = (f"{there:.2f} s", f"{here:.2f} s", f"{here / there:.2f}", "≥ 0.7")
    return [("export as lines", *shown)]


def _workers(root: Path) -> list[tuple[str, ...]]:
    rates = []
    for workers in (1, 2):
        with serving(root, workers) as (host, port, _):
            data = request("/graphs/people/query", {"query": TRIVIAL}, f"{host}:{port}")
            rates.append(asyncio.run(rate(host, port, data)))
    one, two = rates
    return [("two workers", f"{two:.0f}/s", f"{one:.0f}/s", f"{two / one:.2f}", "≥ 1.8")]


def _mixed(root: Path, seconds: float) -> None:
    with serving(root) as (host, port, process):
        statuses, memory = asyncio.run(_mixed_clients(host, port, process.pid, seconds))
    print(f"64 clients, one write in eight, {seconds:.0f} s: answers by status {dict(statuses)};")
    marks = ", ".join(f"{mib:.0f}" for mib in memory)
    print(f"memory in MiB, at ten moments: {marks}")


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
        for _ in range(10):
            await asyncio.sleep(seconds / 10)
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            found.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        return found

    memory, *_ = await asyncio.gather(watch(), *(client(n) for n in range(64)))
    return statuses, memory


if __name__ == "__main__":
    main()
