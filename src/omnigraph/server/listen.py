"""The socket, and the settings of the HTTP server."""

from __future__ import annotations

import signal
import socket
import sys
from typing import Final

import uvicorn

from omnigraph.server.http.connections import ConnectionLimits, protocol
from omnigraph.server.settings import Settings

LISTENING: Final = "OMNIGRAPH_LISTEN_ADDR="
_BACKLOG: Final = 2048


def run(app: object, settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and finish what is in flight."""
    run_server(uvicorn.Server(config(app, settings)), listener)


def run_server(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run a server; it ends normally on a signal, instead of dying by it afterwards."""

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(sockets=[listener])


def config(
    app: object, settings: Settings, limits: ConnectionLimits | None = None
) -> uvicorn.Config:
    """Return the settings of the HTTP server."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # an ASGI application
        http=protocol((limits or ConnectionLimits()).fitted()),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="on",
        # No answer depends on the address of the client or on the scheme.
        proxy_headers=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        backlog=_BACKLOG,
    )


def listen(settings: Settings) -> socket.socket:
    """Bind the socket."""
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
    listener.set_inheritable(True)
    return listener


def print_address(listener: socket.socket) -> None:
    """Print where the server listens, for programs that start it."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"{LISTENING}{shown}:{port}\n")
    sys.stdout.flush()
