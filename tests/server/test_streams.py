"""Streams end with their client: whatever happens to it, the slot of the graph is free again.

Clients that read nothing cost a bounded memory together, and others are told so.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import pytest

from omnigraph.server.http.streams import CHUNK_BYTES, chunked
from omnigraph.server.http.transport import (
    BLOB_SHARE_MAX,
    BLOBS_BYTES_MAX,
    LINES_BYTES_MAX,
    LINES_SHARE,
    TransportMemory,
)
from support.http_graph import TestServer

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
FREED_MAX_S = 20.0
SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/graphs/demo/export",
    "raw_path": b"/graphs/demo/export",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    "server": ("localhost", 80),
    "client": ("localhost", 1),
}


@pytest.fixture
def large(server: TestServer) -> TestServer:
    """A graph whose export has several chunks."""
    lines = [
        f'{{"type": "Note", "data": {{"name": "{number:04}{"x" * 200}"}}}}' for number in range(900)
    ]
    server.graph.load("\n".join(lines).encode(), mode="merge")
    return server


def require_free(server: TestServer) -> None:
    """Wait until another export can begin: the last part may still be made."""
    deadline = time.monotonic() + FREED_MAX_S
    while server.served.export_slot.is_taken():
        assert time.monotonic() < deadline, "the slot stays taken"
        time.sleep(0.01)
    answer = server.send(
        "POST", "/graphs/demo/export", [("Content-Type", "application/json")], b"{}"
    )
    assert answer.status_code == 200


async def export(server: TestServer, send: Send, gone: asyncio.Event, **scope: object) -> None:
    """Ask for an export as a server would; `gone` is when the client goes away."""
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"{}", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    await server.app({**SCOPE, **scope}, receive, send)


def test_a_client_that_goes_away_in_the_middle_frees_the_slot(large: TestServer) -> None:
    chunks: list[bytes] = []

    async def run() -> None:
        gone = asyncio.Event()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                chunks.append(message["body"])
                gone.set()
                await asyncio.sleep(5)

        await export(large, send, gone)

    asyncio.run(run())
    assert len(chunks) == 1
    require_free(large)


def test_a_client_that_goes_away_before_the_answer_frees_the_slot(large: TestServer) -> None:
    async def send(message: Message) -> None:
        raise OSError("the connection is closed")

    async def run() -> None:
        await export(large, send, asyncio.Event())

    with pytest.raises((OSError, ExceptionGroup)):
        asyncio.run(run())
    require_free(large)


def test_a_client_that_reads_slowly_costs_one_chunk(large: TestServer) -> None:
    sizes: list[int] = []

    async def run() -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.sleep(0.02)
                sizes.append(len(message["body"]))

        await export(large, send, asyncio.Event())

    asyncio.run(run())
    assert sum(sizes) > 180_000
    assert max(sizes) <= CHUNK_BYTES
    assert sum(map(bool, sizes)) > 1, "not the whole export at once"
    require_free(large)


def test_whoever_has_seen_the_end_may_ask_again_at_once(large: TestServer) -> None:
    taken: list[bool] = []

    async def run() -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                taken.append(large.served.export_slot.is_taken())

        for _ in range(5):
            await export(large, send, asyncio.Event())

    asyncio.run(run())
    assert taken == [False] * 5


def test_no_chunk_is_longer_than_its_limit() -> None:
    lines = [b"a" * 10, b"b" * 25, b"c" * 10, b"d" * 3, b"e" * 100]
    found = list(chunked(lines, 20))
    assert b"".join(found) == b"".join(lines)
    assert max(map(len, found)) == 20


# -- clients that do not read ---------------------------------------------------------------------

DIFF: dict[str, object] = {
    "method": "GET",
    "path": "/graphs/demo/diff",
    "raw_path": b"/graphs/demo/diff",
    "query_string": b"from=version:1&to=main",
    "headers": [(b"host", b"localhost"), (b"accept", b"application/x-ndjson")],
}
PHOTO = b"entity=node&type=Doc&id=big&property=body"
BLOB: dict[str, object] = {
    "method": "GET",
    "path": "/graphs/demo/blob",
    "raw_path": b"/graphs/demo/blob",
    "query_string": PHOTO,
    "headers": [(b"host", b"localhost")],
}


class Unread:
    """Clients that take one part of their answers, and no more."""

    def __init__(self, server: TestServer, scope: dict[str, object]) -> None:
        self._server = server
        self._scope = scope
        self._gone = asyncio.Event()
        self._begun = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, count: int) -> None:
        """Let so many more ask, and wait until all of them have their first part."""

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                self._begun += 1
                await self._gone.wait()

        expected = self._begun + count
        for _ in range(count):
            asked = export(self._server, send, self._gone, **self._scope)
            self._tasks.append(asyncio.create_task(asked))
        async with asyncio.timeout(FREED_MAX_S):
            while self._begun < expected:
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        self._gone.set()
        await asyncio.gather(*self._tasks)


async def answer_of(server: TestServer, scope: dict[str, object]) -> tuple[int, bytes]:
    status, body = 0, b""

    async def send(message: Message) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await export(server, send, asyncio.Event(), **scope)
    return status, body


async def free_again(server: TestServer, scope: dict[str, object]) -> None:
    async with asyncio.timeout(FREED_MAX_S):
        while (await answer_of(server, scope))[0] != 200:
            await asyncio.sleep(0.01)


def test_clients_that_read_no_lines_cost_a_bounded_memory(large: TestServer) -> None:
    """More of them are refused, small requests are answered, and all is free when they leave."""
    memory = large.transport.lines

    async def run() -> None:
        unread = Unread(large, DIFF)
        await unread.add(LINES_BYTES_MAX // LINES_SHARE)
        assert memory.held == LINES_BYTES_MAX
        status, body = await answer_of(large, DIFF)
        assert status == 413
        assert orjson.loads(body)["resource_limit"] == {
            "resource": "stream_export_transport_bytes",
            "limit": LINES_BYTES_MAX,
            "actual": LINES_BYTES_MAX + LINES_SHARE,
        }
        status, body = await answer_of(large, {})
        assert (status, b"stream_export_transport_bytes" in body) == (413, True)
        assert not large.served.export_slot.is_taken()
        health = {"path": "/healthz", "raw_path": b"/healthz", "method": "GET"}
        assert (await answer_of(large, health))[0] == 200
        await unread.leave()
        await free_again(large, DIFF)

    asyncio.run(run())
    assert memory.held == 0


def test_a_stream_that_finds_no_memory_waits_for_one_that_ends() -> None:
    async def run() -> None:
        memory = TransportMemory("r", 10, wait_s=FREED_MAX_S)
        await memory.reserve(10)
        waiting = asyncio.create_task(memory.reserve(4))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(memory.release, 10)
        await waiting
        assert memory.held == 4

    asyncio.run(run())


def test_clients_that_read_no_blobs_cost_a_bounded_memory(server: TestServer) -> None:
    value = base64.b64encode(bytes(6 << 20)).decode()
    record = f'{{"type": "Doc", "data": {{"slug": "big", "body": "base64:{value}"}}}}'
    server.graph.load(record.encode(), mode="merge")
    memory = server.transport.blobs

    async def run() -> None:
        unread = Unread(server, BLOB)
        await unread.add(4)
        assert memory.held == 4 * BLOB_SHARE_MAX
        # A small value costs what it has.
        small = BLOB | {"query_string": PHOTO.replace(b"big", b"d1")}
        await memory.reserve(BLOBS_BYTES_MAX - memory.held - 5)
        assert (await answer_of(server, small)) == (200, b"hello")
        memory.release(BLOBS_BYTES_MAX - 4 * BLOB_SHARE_MAX - 5)
        await unread.leave()
        await free_again(server, BLOB)

    asyncio.run(run())
    assert memory.held == 0
