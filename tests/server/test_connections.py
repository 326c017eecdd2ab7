"""Clients that send slowly, half, too much or nothing: closed in time, and nobody else waits."""

from __future__ import annotations

import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import orjson
import pytest

from omnigraph.server.http.connections import FILES_KEPT, ConnectionLimits
from support.served import ServedProcess, served_process
from support.served_here import Served, serve

LIMITS = ConnectionLimits(
    connections_max=20,
    header_bytes_max=4096,
    idle_max_s=1.0,
    header_max_s=1.0,
    body_idle_max_s=1.0,
)
CLOSED_MAX_S = 30.0
"""A busy machine needs longer than the limits say."""
IDLE = 10_000
IDLE_KIB = 24
"""What an idle connection may add to the memory of the server."""
LOAD = (
    b"POST /graphs/demo/load/ndjson HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nConnection: close\r\n"
)


@pytest.fixture
def served(root: Path) -> Iterator[Served]:
    with serve(root, limits=LIMITS) as found:
        yield found


def connect(served: Served) -> socket.socket:
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=CLOSED_MAX_S)


def rest(connection: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    data = b""
    try:
        while part := connection.recv(65_536):
            data += part
    except ConnectionResetError:
        pass
    return data


def error_of(answer: bytes) -> tuple[int, dict[str, object]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    return int(head.split(b" ", 2)[1]), orjson.loads(body)


def test_a_connection_that_asks_nothing_is_closed(served: Served) -> None:
    with connect(served) as connection:
        assert rest(connection) == b""


def test_headers_that_never_end_are_408(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        status, shape = error_of(rest(connection))
    assert status == 408
    assert set(shape) == {"error"}


def test_a_header_now_and_then_puts_nothing_off(served: Served) -> None:
    """The clients of a slow attack are gone, and others are answered meanwhile."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(served)) for _ in range(8)]
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        deadline = time.monotonic() + CLOSED_MAX_S
        left = list(slow)
        while left:
            assert time.monotonic() < deadline, "slow clients are not closed"
            for connection in list(left):
                try:
                    connection.sendall(b"X-A: b\r\n")
                except OSError:
                    left.remove(connection)
            assert httpx2.get(f"{served.url}/healthz").status_code == 200


def test_a_body_that_stops_is_408_and_has_no_effect(served: Served) -> None:
    before = httpx2.get(f"{served.url}/graphs/demo/commits").json()
    record = b'{"type": "Note", "data": {"name": "half"}}\n'
    with connect(served) as connection:
        connection.sendall(LOAD + b"Content-Length: %d\r\n\r\n" % (2 * len(record)) + record)
        status, _ = error_of(rest(connection))
    assert status == 408
    assert httpx2.get(f"{served.url}/graphs/demo/commits").json() == before


def test_a_body_that_moves_takes_as_long_as_it_needs(served: Served) -> None:
    """Each part comes before the deadline, and all of them together long after the first one."""
    parts = 8
    records = b"".join(
        b'{"type": "Note", "data": {"name": "%s%d"}}\n' % (b"m" * 1500, number)
        for number in range(parts)
    )
    size = len(records) // parts
    with connect(served) as connection:
        connection.sendall(LOAD + b"Content-Length: %d\r\n\r\n" % len(records))
        started = time.monotonic()
        for number in range(parts):
            wait_until(started + number * LIMITS.body_idle_max_s * 0.3)
            connection.sendall(records[number * size : (number + 1) * size])
        answer = rest(connection)
    assert time.monotonic() - started > 2 * LIMITS.body_idle_max_s
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def test_more_headers_than_allowed_are_431(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        connection.sendall(b"".join(b"X-%d: y\r\n" % number for number in range(1000)))
        status, _ = error_of(rest(connection))
    assert status == 431


def test_what_is_no_http_is_a_json_error(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"hello\r\n\r\n")
        assert error_of(rest(connection)) == (
            400,
            {"error": "Invalid HTTP request received.", "code": "bad_request"},
        )


def test_a_connection_beyond_the_limit_is_503_and_others_stay(served: Served) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(httpx2.Client(base_url=served.url))
        assert first.get("/healthz").status_code == 200
        for _ in range(LIMITS.connections_max - 1):
            stack.enter_context(connect(served)).sendall(b"GET /")
        with connect(served) as late:
            status, shape = error_of(rest(late))
        assert (status, shape) == (503, {"error": "too many connections: try again later"})
        assert first.get("/healthz").status_code == 200
    deadline = time.monotonic() + CLOSED_MAX_S
    while httpx2.get(f"{served.url}/healthz").status_code != 200:
        assert time.monotonic() < deadline, "connections that are gone are still counted"


def test_limits_fit_below_the_open_files_of_the_system() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
        fitted = ConnectionLimits(connections_max=4096).fitted()
        assert fitted.connections_max == 4096
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 4096 + FILES_KEPT
        beyond = ConnectionLimits(connections_max=hard * 2).fitted()
        assert beyond.connections_max == hard - FILES_KEPT
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- ten thousand ---------------------------------------------------------------------------------


@pytest.fixture
def process(filled: Path, tmp_path: Path) -> Iterator[ServedProcess]:
    root = shutil.copytree(filled, tmp_path / "demo.omni")
    with served_process(str(root)) as server:
        yield server
        server.stop()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have as many sockets as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections_hold_nobody_up(process: ServedProcess) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= IDLE + FILES_KEPT, "this system does not allow enough open files"
    assert process.get("/graphs/demo/branches").status_code == 200
    before = process.memory_peak_kib()
    with ExitStack() as stack:
        for number in range(IDLE):
            stack.enter_context(process.connect())
            if number % 1000 == 0:
                assert process.get("/graphs/demo/branches").status_code == 200
        assert process.get("/graphs/demo/branches").status_code == 200
        assert process.sockets() >= IDLE, "the server has not taken them"
        assert process.memory_peak_kib() - before < IDLE * IDLE_KIB
    assert process.get("/graphs/demo/branches").status_code == 200
