"""Child processes by the hundred.

Importing Python libraries costs seconds of processor time, so one process imports everything that
is safe to fork, and children are forked from it. Lance is not: each child loads it after the fork.

A child and the test talk over a socket, one JSON object per line. A child runs until it is killed
or its socket is closed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Self

ANSWER_MAX_S: Final = 120.0
_BOOT: Final = (
    "import sys, json; sys.path[:0] = json.loads(sys.argv[1]);"
    "from crash.nursery import run_nursery; run_nursery(int(sys.argv[2]))"
)

Message = Mapping[str, object]


class ChildDiedError(Exception):
    """The child's end of the socket is closed."""


class Child:
    """A running child, as the test sees it."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._connection = connection
        self._lines = connection.makefile("rb")

    def send(self, *messages: Message) -> None:
        """Hand over messages; a child that is gone hears nothing."""
        data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise ChildDiedError(str(error)) from error

    def receive(self) -> dict[str, object]:
        """Wait for the next message; everything that a dead child has said is still heard."""
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise AssertionError(f"child {self.pid} said nothing for {ANSWER_MAX_S} s") from None
        except OSError as error:
            raise ChildDiedError(str(error)) from error
        if not line.endswith(b"\n"):
            raise ChildDiedError("end of file")
        message: dict[str, object] = json.loads(line)
        return message

    def ask(self, message: Message) -> dict[str, object]:
        """Send one message and wait for its answer."""
        self.send(message)
        return self.receive()

    def rest(self) -> Iterator[dict[str, object]]:
        """Yield what a child has said until it died."""
        while True:
            try:
                yield self.receive()
            except ChildDiedError:
                return

    def kill(self) -> None:
        """End the child with SIGKILL, and wait until the kernel has let go of its locks."""
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def wait(self) -> None:
        """Wait until the child is gone."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        assert poll.poll(ANSWER_MAX_S * 1_000), f"child {self.pid} does not die"

    def wait_until_stopped(self) -> None:
        """Wait until SIGSTOP has reached the child; whatever it says before is left to be read."""
        give_up = time.monotonic() + ANSWER_MAX_S
        while not self._is_stopped():
            assert time.monotonic() < give_up, f"child {self.pid} does not stop"
            time.sleep(0.005)

    def _is_stopped(self) -> bool:
        status = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        return status.rpartition(") ")[2].startswith("T")

    def close(self) -> None:
        """End the child and forget it."""
        self.signal(signal.SIGKILL)
        self._lines.close()
        self._connection.close()
        os.close(self._pidfd)


class Nursery:
    """Starts children, each of them before it is needed."""

    def __init__(self, *, ahead: int = 1) -> None:
        self._ahead = ahead
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno())]
        environment = dict(os.environ) | {"OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self._control.settimeout(ANSWER_MAX_S)
        self._spare: deque[Child] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for child in self._spare:
            child.close()
        self._control.close()
        self._process.wait(ANSWER_MAX_S)

    def start(self) -> Child:
        """Return a child that has imported what it needs."""
        while len(self._spare) <= self._ahead:
            self._spare.append(self._fork())
        child = self._spare.popleft()
        assert child.receive() == {"warm": True}
        return child

    @contextmanager
    def child(self) -> Iterator[Child]:
        """Have a child for the length of a block."""
        child = self.start()
        try:
            yield child
        finally:
            child.close()

    def _fork(self) -> Child:
        ours, theirs = socket.socketpair()
        socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
        theirs.close()
        pid = int(self._control.recv(64))
        ours.settimeout(ANSWER_MAX_S)
        child = Child(pid, ours)
        child.send({"do": "warm"})
        return child


# -- inside the process that forks ---------------------------------------------------------------


def run_nursery(control_fd: int) -> None:
    """Import what is safe to fork, then fork a child for every request."""
    _warm_up()
    assert "lance" not in sys.modules, "Lance runs threads, which a fork would not copy"
    # Nobody waits for these children: the kernel forgets them as they die.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=control_fd) as control:
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, 64, 1)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                _be_child(control, descriptors[0])
            os.close(descriptors[0])
            control.send(str(pid).encode())


def _warm_up() -> None:
    """Load what children share and what does not load Lance."""
    import pandas  # noqa: F401 - pyarrow loads it with the first array
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401 - shared by all children

    import crash.child  # noqa: F401 - and with it the engine
    from omnigraph.clock import SystemClock
    from omnigraph.query import parse_queries
    from omnigraph.schema import compile_schema

    compile_schema("node Warm { up: String @key }", domain=SystemClock().ulid())
    parse_queries('query q() { insert Warm { up: "x" } }')


def _be_child(control: socket.socket, descriptor: int) -> None:
    from crash.child import serve

    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=descriptor) as connection:
        serve(connection.makefile("rb"), connection.makefile("wb", buffering=0))
    os._exit(0)


def say(stream: IO[bytes], **message: object) -> None:
    """Send one message; it is on its way when this returns."""
    stream.write(json.dumps(message).encode() + b"\n")
