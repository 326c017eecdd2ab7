"""Which web pages may call the server.

1. CORS is off unless origins are named: no headers, no answer to a preflight.
2. In open mode there is no token that a foreign page lacks: a request that changes something and
   comes from a page of another origin is refused.
3. In open mode on a loopback address, the `Host` must be a loopback name or one that was allowed:
   otherwise a page could reach the server under a name of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from omnigraph.server.errors import ForbiddenError

_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_HEADERS: Final = "authorization, content-type, omnigraph-if-graph-commit, x-request-id, range"
_SHOWN: Final = (
    "etag, content-range, omnigraph-snapshot-id, omnigraph-graph-commit, x-request-id, retry-after"
)


@dataclass(frozen=True)
class Origins:
    """Where pages that may call the server come from."""

    cors: frozenset[str] = frozenset()
    is_open: bool = False
    hosts: frozenset[str] | None = None
    """The names that a request may call the server by; None is any."""

    def require(self, request: Request) -> None:
        """Raise when the request comes from a page that may not send it."""
        host = request.headers.get("host", "")
        if self.hosts is not None and _name_of(host) not in self.hosts:
            raise ForbiddenError(f"the host '{host}' is not this server")
        origin = request.headers.get("origin")
        if not self.is_open or origin is None or request.method not in _CHANGING:
            return
        if origin not in self.cors and _host_of(origin) != host:
            raise ForbiddenError(f"the origin '{origin}' may not change anything here")

    def preflight(self, request: Request, methods: Sequence[str]) -> Response | None:
        """Return the answer to a preflight of an origin that is allowed."""
        if request.method != "OPTIONS" or request.headers.get("origin") not in self.cors:
            return None
        if not methods:
            return None
        headers = {
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": _HEADERS,
            "Access-Control-Max-Age": "600",
        }
        return Response(None, 204, headers)

    def headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        """Return the headers that let a page of an allowed origin read the answer."""
        origin = request.headers.get("origin") if self.cors else None
        if origin not in self.cors or origin is None:
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _SHOWN.encode()),
            (b"vary", b"Origin"),
        ]


def loopback_hosts(allowed: Sequence[str]) -> frozenset[str]:
    """Return the names of a server that listens to this machine only."""
    return frozenset({*_LOOPBACK, *(name.lower() for name in allowed)})


def _host_of(origin: str) -> str | None:
    """Return the host and the port of an origin; none of what is no address."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
