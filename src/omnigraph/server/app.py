"""The application: routing, the steps before a route, errors, headers, request ids, logs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph import BranchNotFoundError, TagNotFoundError
from omnigraph.server.admission import RETRY_AFTER_S
from omnigraph.server.call import Call, Serving, json_answer
from omnigraph.server.http.incoming import IncomingRequest, RequestIds
from omnigraph.server.http.origin import Origins
from omnigraph.server.http.router import Found, Router
from omnigraph.server.metrics import Metrics
from omnigraph.server.openapi import openapi_document
from omnigraph.server.pool import ClientGoneError
from omnigraph.server.routes import ROUTES
from omnigraph.server.routes.route import Route
from omnigraph.server.status import ready_shape, status_lines
from omnigraph.wire.http_errors import http_answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SAFE_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""On every answer."""

_log = logging.getLogger(__name__)


class App:
    """An ASGI application that serves graphs."""

    def __init__(
        self,
        serving: Serving,
        *,
        origins: Origins | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._serving = serving
        self._origins = origins or Origins()
        self._metrics = metrics or Metrics()
        self._clock = clock or SystemClock()
        self._request_ids = RequestIds(self._clock.ulid())
        self._router = Router([(route.method, route.path, route) for route in ROUTES])
        self._document = openapi_document(ROUTES, requires_bearer=serving.requires_bearer)
        self._plain: dict[str, Callable[[], Response]] = {
            "/openapi.json": lambda: json_answer(self._document),
            "/readyz": self._readyz,
            "/metrics": lambda: self._metrics.answer(status_lines(self._serving)),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        request = IncomingRequest(scope, receive)
        request_id = self._request_ids.of(request)
        started = self._clock.monotonic_s()
        answer, name = await self._answer(request)
        status = 499 if answer is None else answer.status_code
        self._metrics.count(name, status, self._clock.monotonic_s() - started)
        if _log.isEnabledFor(logging.DEBUG):
            shown = {"request_id": request_id, "operation": name, "status": status}
            _log.debug("request", extra=shown)
        if answer is None:
            return
        if request.has_rest:
            answer.headers["Connection"] = "close"
        await answer(
            scope, request.receive, _with_headers(send, request_id, self._origins, request)
        )

    async def _answer(self, request: Request) -> tuple[Response | None, str]:
        """Return the answer, None if the client is gone, and the name of the operation."""
        raw = request.scope.get("raw_path") or request.scope["path"].encode()
        name = "none"
        try:
            found = self._router.find(request.method, raw)
            if isinstance(found, Found):
                name = found.route.operation_id
            self._origins.require(request)
            if isinstance(found, Found):
                return await self._run(found, request), name
            return self._plain_answer(request, found), name
        except (ClientGoneError, ClientDisconnect):
            return None, name
        except OmnigraphError as error:
            return self._error(error), name
        except Exception:  # noqa: BLE001 - the last net: it goes to the log only
            _log.exception("a request failed in a way that was not foreseen")
            return json_answer({"error": "internal error", "code": "internal"}, status=500), name

    def _plain_answer(self, request: Request, methods: list[str]) -> Response:
        """Answer what is no route of the table: documents, preflights, unknown paths."""
        path = request.scope["path"]
        if path in self._plain:
            methods = ["GET", "HEAD"]
        if path in self._plain and request.method in methods:
            return self._plain[path]()
        preflight = self._origins.preflight(request, methods)
        if preflight is not None:
            return preflight
        return (
            Response(None, 405, {"Allow": ", ".join(methods)}) if methods else Response(None, 404)
        )

    async def _run(self, found: Found[Route], request: Request) -> Response:
        route, serving = found.route, self._serving
        serving.follow()
        actor = None
        if serving.requires_bearer and not route.is_public:
            # Costs a look at the times of a file: a change holds from the next request on.
            serving.tokens.refresh()
            given = request.headers.getlist("authorization")
            # Of two headers nothing says which one a proxy has checked.
            actor = serving.tokens.actor_of(given[0] if len(given) == 1 else None)
        served = serving.graphs.get(found.params["graph_id"]) if route.has_graph else None
        call = Call(serving, request, found.params, actor, served)
        try:
            answer = await route.handler(call)
        except (BranchNotFoundError, TagNotFoundError) as error:
            raise call.unnamed(error) from error
        if route.successor is not None:
            answer.headers["Deprecation"] = "true"
            answer.headers["Link"] = f'<{route.successor}>; rel="successor-version"'
        return answer

    def _error(self, error: OmnigraphError) -> Response:
        status, shape = http_answer(error)
        headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 429 else None
        if status >= 500:
            _log.error("%s", error, exc_info=error)
        return json_answer(shape, status=status, headers=headers)

    def _readyz(self) -> Response:
        self._serving.follow()
        return json_answer(ready_shape(self._serving))


def _with_headers(send: Send, request_id: str, origins: Origins, request: Request) -> Send:
    more = [*SAFE_HEADERS, (b"x-request-id", request_id.encode()), *origins.headers(request)]

    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return with_headers


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
