"""A real S3 protocol server on loopback, with its access log.

Requests of every client are counted where they arrive, so Lance's and obstore's alike. The server
is moto, in this process; or MinIO, as a process of its own behind the same front, where the
variable `OMNIGRAPH_MINIO` names its binary.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wsgi import get_input_stream

MINIO_VARIABLE: Final = "OMNIGRAPH_MINIO"
ACCESS_KEY: Final = "omnigraph"
SECRET_KEY: Final = "omnigraph-tests"  # noqa: S105 - of a server on loopback
"""MinIO demands eight characters."""
START_MAX_S: Final = 30.0
_ONE_HOP: Final = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})


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

    inner: WSGIApplication
    lock: threading.Lock = field(default_factory=threading.Lock)
    log: list[Request] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Part of a path to HTTP status line."""
    held: dict[str, threading.Event] = field(default_factory=dict)
    """Part of a path to what its requests wait for."""
    interruptions: list[_Interruption] = field(default_factory=list)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> object:
        query = environ.get("QUERY_STRING", "")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        method = environ["REQUEST_METHOD"]

        def start(status: str, headers: list[tuple[str, str]], *rest: object) -> object:
            with self.lock:
                self.log.append(Request(method, path, int(status.split(maxsplit=1)[0])))
            return start_response(status, headers, *rest)  # type: ignore[arg-type]  # passed on as they are

        self._interrupt(method, path)
        for released in [event for part, event in self.held.items() if part in path]:
            released.wait()
            # Nobody waits for it any more, and it must not get into what others count.
            start_response("503 Slow Down", [])
            return [b""]
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
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which another process, or a command, reaches the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def make_bucket(self, name: str = bucket) -> None:
        """Create a bucket."""
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=name)
        client.close()

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

        It is not answered inside of the block, so whoever waits for it is interrupted for sure.
        """
        self.interrupt("GET", part_of_path, lambda: signal.raise_signal(signal.SIGINT))
        with self.holding(part_of_path):
            yield

    @contextmanager
    def holding(self, part_of_path: str) -> Iterator[None]:
        """Let requests for some paths wait as long as the block lasts; nothing is done for them."""
        released = self._front.held[part_of_path] = threading.Event()
        try:
            yield
        finally:
            del self._front.held[part_of_path]
            released.set()

    @contextmanager
    def refusing(self, part_of_path: str, status: str = "403 Forbidden") -> Iterator[None]:
        """Answer requests for some paths with an error."""
        self._front.refused[part_of_path] = status
        try:
            yield
        finally:
            del self._front.refused[part_of_path]


class _Forward:
    """Hands requests on to a server behind this one, as they came: they are signed."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            connection.putrequest(
                environ["REQUEST_METHOD"],
                environ["RAW_URI"],
                skip_host=True,
                skip_accept_encoding=True,
            )
            body = get_input_stream(environ).read()
            for name, value in _headers(environ):
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        headers = [(n, v) for n, v in response.getheaders() if n.lower() not in _ONE_HOP]
        start_response(f"{response.status} {response.reason}", headers)
        return [content]


def _headers(environ: WSGIEnvironment) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name == "CONTENT_TYPE":
            yield "Content-Type", value
        elif name.startswith("HTTP_"):
            spelled = name.removeprefix("HTTP_").replace("_", "-").lower()
            if spelled not in _ONE_HOP:
                yield spelled, value


@contextmanager
def _minio(binary: str) -> Iterator[_Forward]:
    """Run MinIO with a folder of its own, and forward to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        (Path(folder) / "data").mkdir()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [binary, "server", f"{folder}/data", "--address", f"127.0.0.1:{port}"],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_for(process, port, log)
            yield _Forward(port)
        finally:
            process.terminate()
            process.wait(START_MAX_S)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + START_MAX_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{MINIO_VARIABLE}: the server does not start:\n{log.read_text()}")


@contextmanager
def _backend() -> Iterator[WSGIApplication]:
    binary = os.environ.get(MINIO_VARIABLE)
    if not binary:
        yield DomainDispatcherApplication(create_backend_app)
        return
    with _minio(binary) as forward:
        yield forward


@contextmanager
def serve_s3() -> Iterator[S3Server]:
    """Run a server for the length of the block."""
    with _backend() as inner:
        yield from _serve(inner)


def _serve(inner: WSGIApplication) -> Iterator[S3Server]:
    front = _Front(inner)
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
