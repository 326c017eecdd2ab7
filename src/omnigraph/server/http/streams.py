"""Answers that are made while they are sent.

1. A part is made only when the client has taken the one before (and the transport its buffer), so a
   client that reads slowly, or not at all, costs two parts of memory and no thread.
2. The first part is made before the answer begins: a failure until then is an ordinary error
   answer. A failure after it breaks the connection, so that no client takes a part for the whole.
3. However the answer ends, the iterator behind it is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.server.pool import EnginePool

CHUNK_BYTES: Final = 131_072
"""Each chunk is handed from a thread to the event loop, which takes as long as many lines."""
NDJSON: Final = "application/x-ndjson; charset=utf-8"
ARROW: Final = "application/vnd.apache.arrow.stream"


def chunked(lines: Iterable[bytes], size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield lines together, in chunks of at most `size` bytes; a longer line is cut."""
    held: list[bytes] = []
    count = 0
    for line in lines:
        if count + len(line) > size:
            if held:
                yield b"".join(held)
                held, count = [], 0
            if len(line) > size:
                yield from cut((line,), size)
                continue
        held.append(line)
        count += len(line)
    if held:
        yield b"".join(held)


def cut(parts: Iterable[bytes], size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield parts in chunks of at most `size` bytes."""
    for part in parts:
        for start in range(0, len(part), size):
            yield part[start : start + size]


class _Source:
    """The iterator behind an answer; it is used in threads, by one at a time."""

    def __init__(self, make: Callable[[], Iterator[bytes]], on_end: Callable[[], None]) -> None:
        self._make = make
        self._on_end = on_end
        self._guard = threading.Lock()
        self._is_closed = False
        self._chunks: Iterator[bytes] | None = None

    def next(self) -> bytes | None:
        """Return the next part, None after the last one; then everything is closed."""
        with self._guard:
            if self._is_closed:
                return None
            if self._chunks is None:
                self._chunks = self._make()
            part = next(self._chunks, None)
            if part is None:
                # Before the end is sent: a client that has read it may ask for the next at once.
                self._close()
            return part

    def close(self) -> None:
        """Close the iterator, after the part that is being made; a second time does nothing."""
        with self._guard:
            self._close()

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._on_end()


class _Streamed(StreamingResponse):
    """An answer that closes its source, whether or not it was ever begun."""

    def __init__(
        self,
        pool: EnginePool,
        source: _Source,
        first: bytes | None,
        *,
        headers: Mapping[str, str] | None,
        media_type: str,
    ) -> None:
        super().__init__(_parts(pool, source, first), headers=headers, media_type=media_type)
        self._pool = pool
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not awaited: when the client is gone this task is cancelled, and so is what it awaits.
            self._pool.start(self._source.close)


async def streamed(
    pool: EnginePool,
    make: Callable[[], Iterator[bytes]],
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    on_end: Callable[[], None] = lambda: None,
) -> StreamingResponse:
    """Return an answer of the chunks that an iterator makes in the pool."""
    source = _Source(make, on_end)
    try:
        first = await pool.run(source.next)
    except Exception:
        # The slot of the stream is free before the client reads about the error.
        await pool.run(source.close)
        raise
    except BaseException:
        # A task that is cancelled cannot wait.
        pool.start(source.close)
        raise
    return _Streamed(pool, source, first, headers=headers, media_type=media_type)


async def _parts(pool: EnginePool, source: _Source, first: bytes | None) -> AsyncIterator[bytes]:
    part = first
    while part is not None:
        coming = asyncio.ensure_future(pool.run(source.next))
        # It is not awaited when the client goes away.
        coming.add_done_callback(_looked_at)
        yield part
        part = await coming


def _looked_at(done: asyncio.Future[bytes | None]) -> None:
    """Take the error of a part that may not be awaited; where it is, it is raised all the same."""
    if not done.cancelled():
        done.exception()
