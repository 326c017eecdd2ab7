"""The memory that open streams may take together, whatever their clients read.

A stream reserves the most that it can hold before it begins, and gives it back when it ends. One
that finds no memory waits a moment, and is then refused: a client that reads nothing costs its own
share, and never more than the whole.

| streams | share of one | all of a process | waits |
|---|---|---|---|
| lines and Arrow of exports, baselines, differences | 256 KiB | 2 MiB | 0.25 s |
| Blob values | their size, 4.5 MiB at most | 128 MiB | 5 s |
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from omnigraph.server.errors import StreamBusyError

LINES_BYTES_MAX: Final = 2_097_152
LINES_SHARE: Final = 262_144
"""Two chunks, and what the transport buffers of each."""
LINES_WAIT_S: Final = 0.25
BLOBS_BYTES_MAX: Final = 134_217_728
BLOB_SHARE_MAX: Final = 4_718_592
"""One read of a value, and the chunks that are cut from it."""
BLOBS_WAIT_S: Final = 5.0


class TransportMemory:
    """Bytes that streams reserve. Reserving is of the event loop, releasing of any thread."""

    def __init__(self, resource: str, limit: int, wait_s: float) -> None:
        self._resource = resource
        self._limit = limit
        self._wait_s = wait_s
        self._held = 0
        self._guard = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def held(self) -> int:
        """How many bytes are reserved."""
        return self._held

    async def reserve(self, size: int) -> None:
        """Reserve bytes; raise where there are too few for too long."""
        released = asyncio.Event()
        with self._guard:
            self._waiting[released] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._take(size):
                    await released.wait()
                    released.clear()
        except TimeoutError as error:
            raise StreamBusyError(self._resource, self._limit, self._held + size) from error
        finally:
            with self._guard:
                del self._waiting[released]

    def _take(self, size: int) -> bool:
        with self._guard:
            if self._held + size > self._limit:
                return False
            self._held += size
            return True

    def release(self, size: int) -> None:
        """Give reserved bytes back."""
        with self._guard:
            self._held -= size
            waiting = list(self._waiting.items())
        for released, loop in waiting:
            # Nothing waits on a closed loop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(released.set)


def _lines() -> TransportMemory:
    return TransportMemory("stream_export_transport_bytes", LINES_BYTES_MAX, LINES_WAIT_S)


def _blobs() -> TransportMemory:
    return TransportMemory("stream_blob_transport_bytes", BLOBS_BYTES_MAX, BLOBS_WAIT_S)


@dataclass(frozen=True)
class Transport:
    """The memory of the open streams of a process."""

    lines: TransportMemory = field(default_factory=_lines)
    blobs: TransportMemory = field(default_factory=_blobs)
