"""Several processes behind one socket: they share columns, one that dies is replaced, all drain."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from support.served import ANSWER_MAX_S, ServedProcess, served_process, wait_until

ROWS = 20_000
SCHEMA = "node Item { key: String @key  size: I64 }\nedge Next: Item -> Item"
POINT = "query q($k: String) { match { $i: Item { key: $k } } return { $i.size } }"
HOP = "query q($k: String) { match { $i: Item { key: $k }  $i next $n } return { $n.size } }"


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph whose columns and edges are large enough for files."""
    place = tmp_path_factory.mktemp("items") / "items.omni"
    keys = [f"i{number}" for number in range(ROWS)]
    nodes = pa.table({"key": keys, "size": pa.array(range(ROWS), pa.int64())})
    edges = pa.table({"src": keys, "dst": [*keys[1:], keys[0]]})
    with Graph.init(place, SCHEMA, durability="process", auto_optimize=False) as graph:
        graph.load_tables(nodes={"Item": nodes}, edges={"Next": edges}, mode="append")
    return place


@pytest.fixture
def served(items: Path) -> Iterator[ServedProcess]:
    with served_process(str(items), options=("--unauthenticated", "--workers", "2")) as server:
        yield server


def sizes(server: ServedProcess, text: str, key: str) -> list[int]:
    """Ask over a connection of its own, which any worker may take."""
    answer = httpx2.post(
        f"{server.url}/graphs/items/query",
        json={"query": text, "params": {"k": key}},
        timeout=ANSWER_MAX_S,
    )
    assert answer.status_code == 200, answer.text
    return [value for row in answer.json()["rows"] for value in row.values()]


def workers_of(server: ServedProcess) -> list[int]:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    found = [int(pid) for pid in children.read_text().split()]
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def mapped(pid: int, suffix: str) -> set[str]:
    """Return the files of a kind that a process has mapped: their devices and inodes."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {" ".join(line.split()[3:5]) for line in lines if line.endswith(suffix)}


def folder_of(pid: int) -> Path:
    """Return the folder of the columns that a worker has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in lines if line.endswith(".column"))).parent


def test_workers_map_the_same_files(served: ServedProcess) -> None:
    numbers = iter(range(ROWS - 1))

    def all_have(suffix: str, text: str, step: int) -> bool:
        number = next(numbers)
        assert sizes(served, text, f"i{number}") == [number + step]
        return all(mapped(pid, suffix) for pid in workers_of(served))

    wait_until(lambda: all_have(".column", POINT, 0))
    wait_until(lambda: all_have(".topo", HOP, 1))
    first, second = workers_of(served)
    for suffix in (".column", ".topo"):
        assert mapped(first, suffix) & mapped(second, suffix)
    folder = folder_of(first)
    assert folder.stat().st_mode & 0o077 == 0
    assert served.stop() == 0
    assert not folder.parent.exists()


def test_a_killed_worker_is_replaced_and_the_rest_drains(served: ServedProcess) -> None:
    killed, kept = workers_of(served)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(set(workers_of(served)) - {killed, kept}) == 1)
    for number in range(50):
        assert sizes(served, POINT, f"i{number}") == [number]
    with served.connect() as connection:
        body = b'{"query": "%s", "params": {"k": "i7"}}' % POINT.encode()
        connection.sendall(
            b"POST /graphs/items/query HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        # A worker has begun with the request.
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")
        served.process.send_signal(signal.SIGTERM)
        connection.sendall(body)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert served.process.wait(ANSWER_MAX_S) == 0


def test_columns_are_removed_when_the_parent_was_killed(served: ServedProcess) -> None:
    numbers = iter(range(ROWS))

    def one_has() -> bool:
        sizes(served, POINT, f"i{next(numbers)}")
        return any(mapped(pid, ".column") for pid in workers_of(served))

    wait_until(one_has)
    workers = workers_of(served)
    folder = folder_of(next(pid for pid in workers if mapped(pid, ".column")))
    served.process.kill()
    served.process.wait()
    wait_until(lambda: not folder.exists())
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
