"""Clients that ask as fast as a server answers: `python -m bench.ask HOST PORT SECONDS < request`.

A process of its own, without an event loop: it writes prepared bytes to its sockets and counts the
answers, so that it takes as little as possible of a machine that it shares with the server.
"""

from __future__ import annotations

import re
import selectors
import socket
import sys
import time

CONNECTIONS = 16
WAIT_MAX_S = 30.0
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")


class Connection:
    """One connection: a request goes out when the answer to the one before is complete."""

    def __init__(self, host: str, port: int, data: bytes) -> None:
        self.socket = socket.create_connection((host, port))
        self._data = data
        self._received = b""
        self.socket.sendall(data)

    def read(self) -> int:
        """Take what has come; return how many answers ended with it."""
        received = self.socket.recv(1 << 16)
        assert received, "the server closed the connection"
        self._received += received
        head, mark, rest = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not mark or length is None or len(rest) < int(length[1]):
            return 0
        assert head.startswith(b"HTTP/1.1 200"), head
        self._received = rest[int(length[1]) :]
        self.socket.sendall(self._data)
        return 1


def ask(host: str, port: int, data: bytes, seconds: float) -> tuple[int, float]:
    """Return how many answers came, and in how many seconds."""
    waiting = selectors.DefaultSelector()
    for _ in range(CONNECTIONS):
        connection = Connection(host, port, data)
        waiting.register(connection.socket, selectors.EVENT_READ, connection)
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        ready = waiting.select(WAIT_MAX_S)
        assert ready, "the server does not answer"
        count += sum(key.data.read() for key, _ in ready)
    return count, took


if __name__ == "__main__":
    host, port, seconds = sys.argv[1:]
    print(*ask(host, int(port), sys.stdin.buffer.read(), float(seconds)))
