"""Serving: one process, or several that share a socket."""

from __future__ import annotations

from omnigraph.server.boot import boot
from omnigraph.server.listen import listen, print_address, run
from omnigraph.server.settings import Settings
from omnigraph.server.workers import serve_with_workers


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is in flight."""
    if settings.workers > 1:
        serve_with_workers(settings)
        return
    app = boot(settings)
    listener = listen(settings)
    print_address(listener)
    run(app, settings, listener)
