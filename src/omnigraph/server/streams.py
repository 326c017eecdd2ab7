"""Answers that are made while they are sent.

1. A part is made only when the client has taken the one before (and the transport its buffer), so a
   client that reads slowly, or not at all, costs two parts of memory and no thread.
2. The first part is made before the answer begins: a failure until then is an ordinary error
   answer. A failure after it breaks the connection, so that no client takes a part for the whole.
3. However the answer ends, the iterator behind it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Final

from starlette.responses import StreamingResponse

from omnigraph.server.pool import EnginePool

CHUNK_BYTES: Final = 65_536
NDJSON: Final = "application/x-ndjson; charset=utf-8"
ARROW: Final = "application/vnd.apache.arrow.stream"


def chunked(lines: Iterable[bytes], size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield lines together, in chunks of about `size` bytes."""
    held: list[bytes] = []
    count = 0
    for line in lines:
        held.append(line)
        count += len(line)
        if count >= size:
            yield b"".join(held)
            held, count = [], 0
    if held:
        yield b"".join(held)


async def streamed(
    pool: EnginePool,
    make: Callable[[], Iterator[bytes]],
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    on_end: Callable[[], None] = lambda: None,
) -> StreamingResponse:
    """Return an answer of the chunks that an iterator makes in the pool."""
    try:
        chunks, first = await pool.run(_begun, make)
    except BaseException:
        on_end()
        raise
    return StreamingResponse(
        _parts(pool, chunks, first, on_end), headers=headers, media_type=media_type
    )


def _begun(make: Callable[[], Iterator[bytes]]) -> tuple[Iterator[bytes], bytes | None]:
    chunks = make()
    return chunks, next(chunks, None)


def _next(chunks: Iterator[bytes]) -> bytes | None:
    return next(chunks, None)


async def _parts(
    pool: EnginePool,
    chunks: Iterator[bytes],
    first: bytes | None,
    on_end: Callable[[], None],
) -> AsyncIterator[bytes]:
    part = first
    coming: asyncio.Task[bytes | None] | None = None
    try:
        while part is not None:
            coming = asyncio.ensure_future(pool.run(_next, chunks))
            yield part
            part = await coming
    finally:
        if coming is not None:
            # An iterator cannot be closed while it runs.
            await asyncio.wait((coming,))
        close = getattr(chunks, "close", None)
        if close is not None:
            await pool.run(close)
        on_end()
