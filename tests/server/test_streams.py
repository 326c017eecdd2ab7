"""Streams end with their client: whatever happens to it, the slot of the graph is free again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from omnigraph.server.streams import CHUNK_BYTES
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


async def export(server: TestServer, send: Send, gone: asyncio.Event) -> None:
    """Ask for an export as a server would; `gone` is when the client goes away."""
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"{}", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    await server.app(dict(SCOPE), receive, send)


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
    assert max(sizes) < CHUNK_BYTES + 1_000
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
