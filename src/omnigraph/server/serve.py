"""Serving: one process, or several that share a socket."""

from __future__ import annotations

from omnigraph.server.boot import boot_reloading
from omnigraph.server.listen import listen, print_address, run
from omnigraph.server.reload import Hangup, follow
from omnigraph.server.settings import Settings
from omnigraph.server.workers import serve_with_workers


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is in flight. SIGHUP reads files again."""
    if settings.workers > 1:
        serve_with_workers(settings)
        return
    hangup = Hangup()
    hangup.listen()
    app, reloader = boot_reloading(settings)
    follow(reloader, hangup)
    listener = listen(settings)
    print_address(listener)
    run(app, settings, listener)
