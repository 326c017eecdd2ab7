"""Bad clients over real sockets: the right status, nothing written, the server still answers."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.served import ServedProcess, served_process

GIB = 1 << 30
MEMORY_MAX_KIB = 96 * 1024
"""What a request that is refused may add to the memory of the server."""
QUERY = b'{"query": "query q() { match { $n: Note } return { $n.name } }"}'
MUTATION = b'{"query": "query q() { insert Note { name: \\"x\\" } }"}'
HEAD = b"POST /graphs/demo/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def process(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    root = shutil.copytree(filled, tmp_path_factory.mktemp("bad") / "demo.omni")
    with served_process(str(root)) as server:
        yield server
        server.stop()


@pytest.fixture(autouse=True)
def _unharmed(process: ServedProcess) -> Iterator[None]:
    """Check after every test that nothing was written and that the server answers."""
    before = process.get("/graphs/demo/commits").json()
    yield
    assert process.get("/graphs/demo/commits").json() == before


def request(route: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return HEAD % route + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def status_of(connection: socket.socket) -> int:
    """Return the status of the answer; 0 if the server has closed the connection without one."""
    data = b""
    try:
        while b"\r\n" not in data:
            part = connection.recv(4096)
            if not part:
                return 0
            data += part
    except ConnectionError:
        return 0
    return int(data.split(b" ", 2)[1])


def sent(process: ServedProcess, data: bytes) -> int:
    with process.connect() as connection:
        connection.sendall(data)
        return status_of(connection)


def test_a_client_that_sends_byte_by_byte_is_answered(process: ServedProcess) -> None:
    with process.connect() as connection:
        for byte in request(b"query", QUERY):
            connection.sendall(bytes([byte]))
        assert status_of(connection) == 200


@pytest.mark.parametrize("cut", [5, 60, -20])
def test_half_a_request_does_nothing(process: ServedProcess, cut: int) -> None:
    whole = request(b"mutate", MUTATION)
    with process.connect() as connection:
        connection.sendall(whole[:cut])
        # Another client is not held up meanwhile.
        assert process.get("/healthz").status_code == 200


def test_a_large_body_is_refused_by_its_length(process: ServedProcess) -> None:
    head = HEAD % b"query" + b"Content-Length: %d\r\n\r\n" % GIB
    assert sent(process, head) == 413


def test_a_large_body_in_chunks_is_refused_early_and_in_little_memory(
    process: ServedProcess,
) -> None:
    before = process.memory_peak_kib()
    chunk = b"%x\r\n%s\r\n" % (65_536, b"x" * 65_536)
    count = 0
    with process.connect() as connection:
        connection.sendall(HEAD % b"query" + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            while count * 65_536 < GIB:
                connection.sendall(chunk)
                count += 1
        except OSError:
            # The server has closed the connection; its answer may be lost with it.
            pass
        assert status_of(connection) in (0, 413)
    assert count * 65_536 < GIB // 8, "the server took it all"
    assert process.memory_peak_kib() - before < MEMORY_MAX_KIB


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 400),
        (b'{"query": "\xff"}', 400),
        (b"\xef\xbb\xbf{}", 400),
        (b'{"query": "a", "query": "b"}', 400),
        (b"{", 400),
        (b"", 400),
        (b"{}", 422),
    ],
)
def test_a_bad_body_is_refused(process: ServedProcess, body: bytes, status: int) -> None:
    assert sent(process, request(b"mutate", body)) == status


def test_a_wrong_content_type_is_refused(process: ServedProcess) -> None:
    data = request(b"mutate", MUTATION).replace(b"application/json", b"text/plain")
    assert sent(process, data) == 415


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        HEAD % b"mutate" + b"Content-Length: -1\r\n\r\n" + MUTATION,
        HEAD % b"mutate" + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + MUTATION,
        HEAD % b"mutate" + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD % b"mutate" + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_request_is_no_failure(process: ServedProcess, data: bytes) -> None:
    with process.connect() as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            return
        assert status_of(connection) in {0, *range(400, 500)}


def test_a_flood_of_headers_is_refused_or_answered(process: ServedProcess) -> None:
    before = process.memory_peak_kib()
    flood = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 100) for number in range(20_000))
    with process.connect() as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n")
        except OSError:
            return
        assert status_of(connection) in (0, 200, 400, 431)
    assert process.memory_peak_kib() - before < MEMORY_MAX_KIB


def keep_idle(process: ServedProcess, count: int) -> None:
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(process.connect())
            if number % 2:
                connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert process.get("/graphs/demo/branches").status_code == 200


def test_a_thousand_idle_connections_hold_nobody_up(process: ServedProcess) -> None:
    keep_idle(process, 1_000)
