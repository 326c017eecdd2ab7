"""A server on this machine that speaks the embedding protocols and fails on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, bytes] | tuple[int, bytes, dict[str, str]]


@dataclass
class Seen:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]


@dataclass
class EmbeddingServer:
    """Answers with the next scripted reply, or else like a real server."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    script: list[Callable[[], Reply]] = field(default_factory=list)
    slow_bytes_s: float = 0.0
    """Seconds between single bytes of every answer."""
    ended: threading.Event = field(default_factory=threading.Event)

    def reply(self, *replies: Reply) -> None:
        """Answer the next requests with these."""
        self.script += [lambda reply=reply: reply for reply in replies]  # type: ignore[misc] # mypy cannot type a default of a lambda

    def hang(self) -> None:
        """Let the next request wait until the server ends."""

        def wait() -> Reply:
            self.ended.wait()
            return 500, b""

        self.script.append(wait)

    def answer(self, path: str, body: dict[str, Any]) -> Reply:
        if self.script:
            return self.script.pop(0)()
        if path.endswith(":embedContent"):
            text = body["content"]["parts"][0]["text"]
            return 200, json.dumps(
                {"embedding": {"values": vector(text, body["outputDimensionality"])}}
            ).encode()
        items = [
            {"index": number, "embedding": vector(text, body["dimensions"])}
            for number, text in enumerate(body["input"])
        ]
        return 200, json.dumps({"data": items[::-1]}).encode()


def vector(text: str, dimension: int) -> list[float]:
    """A vector that tells texts apart: not of unit length."""
    return [float(len(text) + 1), *([2.0] * (dimension - 1))]


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """Run a server in a thread."""
    state = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            seen = Seen(
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                json.loads(data),
            )
            state.seen.append(seen)
            status, body, *more = state.answer(self.path, seen.body)
            headers = more[0] if more else {}
            try:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self._write(body)
            except OSError:
                self.close_connection = True

        def _write(self, body: bytes) -> None:
            if not state.slow_bytes_s:
                self.wfile.write(body)
                return
            for number in range(len(body)):
                self.wfile.write(body[number : number + 1])
                self.wfile.flush()
                time.sleep(state.slow_bytes_s)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
