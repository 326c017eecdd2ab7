"""Serving: one process, or several that share a socket."""

from __future__ import annotations

import uvicorn

from omnigraph.server.boot import boot
from omnigraph.server.listen import announce, config, listen
from omnigraph.server.settings import Settings
from omnigraph.server.workers import serve_with_workers


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is in flight."""
    if settings.workers > 1:
        serve_with_workers(settings)
        return
    app = boot(settings)
    listener = listen(settings)
    announce(listener)
    uvicorn.Server(config(app, settings)).run(sockets=[listener])
