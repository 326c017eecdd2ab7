"""A real `omnigraph serve` as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import httpx2

PREFIX: Final = "OMNIGRAPH_LISTEN_ADDR="
START_MAX_S: Final = 240.0
"""Starting takes a second; a machine that does much else needs longer."""
ANSWER_MAX_S: Final = 120.0
_COMMAND: Final = "from omnigraph.cli import main; main()"


@dataclass
class ServedProcess:
    """A running server: where it listens, and what it has written to stderr."""

    process: subprocess.Popen[str]
    host: str
    port: int
    log: IO[str]
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=ANSWER_MAX_S)

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=ANSWER_MAX_S)

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(ANSWER_MAX_S)

    def log_lines(self) -> list[str]:
        self.log.seek(0)
        return self.log.read().splitlines()

    def sockets(self) -> int:
        """Return how many sockets the process has open."""
        found = 0
        for file in Path(f"/proc/{self.process.pid}/fd").iterdir():
            # A file may be closed meanwhile.
            with suppress(FileNotFoundError):
                found += str(file.readlink()).startswith("socket:")
        return found

    def memory_peak_kib(self) -> int:
        """Return the most memory that the process has ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1])


def command(store: str, *options: str, source: str = "--store") -> list[str]:
    return [sys.executable, "-c", _COMMAND, source, store, "serve", *options]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without tokens of whoever runs the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OMNIGRAPH_SERVER_")}
    return kept | more


def run_to_end(words: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command that should end by itself."""
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


@contextmanager
def served_process(
    store: str,
    *,
    options: Sequence[str] = ("--unauthenticated",),
    scheme: str = "http",
    source: str = "--store",
    environ: Mapping[str, str] | None = None,
) -> Iterator[ServedProcess]:
    """Start a server on a port of the system's choice; kill it at the end if it still runs."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command(store, "--bind", "127.0.0.1:0", *options, source=source),
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(**(environ or {})),
            text=True,
        )
        # A server that never says where it listens must not hang the test.
        watch = threading.Timer(START_MAX_S, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            watch.cancel()
            log.seek(0)
            assert line.startswith(PREFIX), log.read()
            host, _, port = line.removeprefix(PREFIX).strip().rpartition(":")
            yield ServedProcess(process, host, int(port), log, scheme)
        finally:
            watch.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that is asked of a server, which may not answer meanwhile."""
    end = time.monotonic() + ANSWER_MAX_S
    while True:
        with suppress(httpx2.HTTPError):
            if holds():
                return
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
