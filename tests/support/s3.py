"""A real S3 protocol server on loopback, with its access log.

Requests of every client are counted where they arrive, so Lance's and obstore's alike.
"""

from __future__ import annotations

import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from wsgiref.types import StartResponse, WSGIEnvironment

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server


@dataclass(frozen=True)
class Request:
    """One request as the server saw it."""

    method: str
    path: str
    status: int


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's name
        """Say nothing."""


@dataclass
class _Interruption:
    method: str
    part_of_path: str
    skip: int
    action: Callable[[], None]


@dataclass
class _Front:
    """Stands before the server: writes the access log and refuses what a test wants refused."""

    inner: DomainDispatcherApplication
    lock: threading.Lock = field(default_factory=threading.Lock)
    log: list[Request] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Part of a path to HTTP status line."""
    delayed: dict[str, float] = field(default_factory=dict)
    """Part of a path to seconds."""
    interruptions: list[_Interruption] = field(default_factory=list)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> object:
        query = environ.get("QUERY_STRING", "")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        method = environ["REQUEST_METHOD"]

        def start(status: str, headers: list[tuple[str, str]], *rest: object) -> object:
            with self.lock:
                self.log.append(Request(method, path, int(status.split(maxsplit=1)[0])))
            return start_response(status, headers, *rest)  # type: ignore[arg-type]

        self._interrupt(method, path)
        time.sleep(max((wait for part, wait in self.delayed.items() if part in path), default=0))
        for part, status in self.refused.items():
            if part in path:
                start(status, [("Content-Type", "application/xml")])
                code = status.split(maxsplit=1)[1].replace(" ", "")
                return [f"<Error><Code>{code}</Code></Error>".encode()]
        return self.inner(environ, start)

    def _interrupt(self, method: str, path: str) -> None:
        with self.lock:
            due = [
                waiting
                for waiting in self.interruptions
                if waiting.method == method and waiting.part_of_path in path
            ]
            for waiting in due:
                waiting.skip -= 1
            ripe = [waiting for waiting in due if waiting.skip < 0]
            for waiting in ripe:
                self.interruptions.remove(waiting)
        for waiting in ripe:
            waiting.action()


class S3Server:
    """A running server with one bucket."""

    bucket = "omnigraph-tests"

    def __init__(self, server: BaseWSGIServer, front: _Front) -> None:
        self._front = front
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        self.options = {
            "aws_endpoint": self.endpoint,
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which another process, or a command, reaches the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def make_bucket(self, name: str = bucket) -> None:
        """Create a bucket."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")  # noqa: S310 - loopback
        urllib.request.urlopen(request).close()  # noqa: S310 - loopback

    @contextmanager
    def requests(self) -> Iterator[list[Request]]:
        """Collect the requests that arrive inside the block."""
        start = len(self._front.log)
        seen: list[Request] = []
        yield seen
        with self._front.lock:
            seen.extend(self._front.log[start:])

    def interrupt(
        self, method: str, part_of_path: str, action: Callable[[], None], *, skip: int = 0
    ) -> None:
        """Run `action` once, before the request after the first `skip` matching ones."""
        waiting = _Interruption(method, part_of_path, skip, action)
        self._front.interruptions.append(waiting)

    @contextmanager
    def pressing_ctrl_c(self, part_of_path: str) -> Iterator[None]:
        """Interrupt this process while a read of some path is under way.

        The read is answered after the block, so whoever waits for it is interrupted for sure.
        """
        ended = threading.Event()

        def press() -> None:
            signal.raise_signal(signal.SIGINT)
            ended.wait()

        self.interrupt("GET", part_of_path, press)
        try:
            yield
        finally:
            ended.set()

    @contextmanager
    def delaying(self, part_of_path: str, seconds: float) -> Iterator[None]:
        """Answer requests for some paths late."""
        self._front.delayed[part_of_path] = seconds
        try:
            yield
        finally:
            del self._front.delayed[part_of_path]

    @contextmanager
    def refusing(self, part_of_path: str, status: str = "403 Forbidden") -> Iterator[None]:
        """Answer requests for some paths with an error."""
        self._front.refused[part_of_path] = status
        try:
            yield
        finally:
            del self._front.refused[part_of_path]


@contextmanager
def serve_s3() -> Iterator[S3Server]:
    """Run a server for the length of the block."""
    front = _Front(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=_QuietHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        s3 = S3Server(server, front)
        s3.make_bucket()
        yield s3
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
