"""A server of one graph, on a port of this machine, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from omnigraph.clock import SystemClock
from omnigraph.server.boot import boot
from omnigraph.server.http.connections import ConnectionLimits
from omnigraph.server.listen import config, listen
from omnigraph.server.settings import Settings

_STARTS_S = 30
_STEP_S = 0.01


@dataclass(frozen=True)
class Served:
    """Where a server listens, and the id of its graph."""

    url: str
    graph: str


@contextmanager
def serve(
    store: str | Path,
    *,
    queries: tuple[Path, ...] = (),
    tokens: Mapping[str, str] | None = None,
    policy: Path | None = None,
    limits: ConnectionLimits | None = None,
) -> Iterator[Served]:
    """Serve a graph until the end of the block; without tokens everyone may do everything."""
    given: dict[str, Any] = {"unauthenticated": True}
    if tokens is not None:
        given = {"environ": dict(tokens), "policy": policy}
    settings = Settings(store=str(store), bind="127.0.0.1:0", queries=queries, **given)
    app, listener = boot(settings), listen(settings)
    server = uvicorn.Server(config(app, settings, limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    clock = SystemClock()
    waited = 0.0
    while not server.started and waited < _STARTS_S:
        clock.sleep(_STEP_S)
        waited += _STEP_S
    try:
        port = listener.getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", Path(store).name.removesuffix(".omni"))
    finally:
        server.should_exit = True
        thread.join(_STARTS_S)
        listener.close()
