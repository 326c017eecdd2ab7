"""Several processes that share one socket.

Threads do not make reads of the engine faster, processes do. The parent binds the socket, starts
the workers and watches them; it opens no graph. A worker that dies is replaced, and its counts are
dropped. Workers end when their parent does, however it ends.

Workers map large columns of their graphs from the folder that they share, as they map topologies
from the graph: these are in memory once. The parent removes the folder; when it was killed, the
workers remove the columns.
"""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import uvicorn

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph.session import share_columns
from omnigraph.server.admission import forget_worker
from omnigraph.server.boot import boot_reloading, check
from omnigraph.server.listen import config, listen, print_address, run_server
from omnigraph.server.logs import log_to_stderr
from omnigraph.server.reload import Hangup, follow
from omnigraph.server.revisions.agreement import forget_proposal
from omnigraph.server.settings import Settings
from omnigraph.server.shared import Shared

RESTARTS_MAX: Final = 5
RESTARTS_S: Final = 60.0
_log = logging.getLogger(__name__)


class WorkersFailingError(OmnigraphError):
    """Workers die as soon as they are started."""

    code = "OG-SERVE-WORKERS"
    hint = "the log says why; `--workers 1` shows it at once"
    template = f"more than {RESTARTS_MAX} workers died within {RESTARTS_S:.0f} s"


def serve_with_workers(settings: Settings) -> None:
    """Serve from several processes until SIGINT or SIGTERM."""
    check(settings)
    with tempfile.TemporaryDirectory(prefix="omnigraph-serve-") as folder:
        listener = listen(settings)
        supervisor = _Supervisor(settings, listener, Path(folder), SystemClock())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, supervisor.stop)
        signal.signal(signal.SIGHUP, supervisor.hang_up)
        supervisor.run()


class _Worker:
    """One process, and the pipe on which it says that it is ready."""

    def __init__(self, process: BaseProcess, ready: Connection) -> None:
        self.process = process
        self.ready = ready


class _Supervisor:
    """Starts workers and replaces those that die."""

    def __init__(
        self, settings: Settings, listener: socket.socket, folder: Path, clock: Clock
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._folder = folder
        self._clock = clock
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[str, _Worker] = {}
        self._deaths: list[float] = []
        self._number = 0
        self._wake, self._woken = self._context.Pipe()
        self._is_stopping = False

    def stop(self, *_: object) -> None:
        """Let every worker finish what is in flight, and end."""
        self._is_stopping = True
        self._wake.send(None)

    def hang_up(self, *_: object) -> None:
        """Let every worker read its files again."""
        for worker in list(self._workers.values()):
            if worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGHUP)

    def run(self) -> None:
        """Serve until stopped."""
        try:
            for _ in range(self._settings.workers):
                self._start()
            for worker in list(self._workers.values()):
                self._wait_until_ready(worker)
            if not self._is_stopping:
                print_address(self._listener)
            while not self._is_stopping:
                self._wait()
        finally:
            self._end()

    def _start(self) -> None:
        name = str(self._number)
        self._number += 1
        ready, says_ready = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=work,
            args=(self._settings, self._listener, Shared(self._folder, name), says_ready),
            name=f"omnigraph-worker-{name}",
        )
        # A worker cannot take the signal at once, and would die of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        says_ready.close()
        self._workers[name] = _Worker(process, ready)

    def _wait_until_ready(self, worker: _Worker) -> None:
        found = multiprocessing.connection.wait(
            [worker.ready, worker.process.sentinel, self._woken]
        )
        if self._woken in found:
            return
        try:
            worker.ready.recv()
        except EOFError:
            worker.process.join()
            sys.exit(worker.process.exitcode or 1)

    def _wait(self) -> None:
        """Wait until a worker dies or the server is stopped."""
        sentinels = {worker.process.sentinel: name for name, worker in self._workers.items()}
        found = multiprocessing.connection.wait([*sentinels, self._woken])
        for one in found:
            if isinstance(one, int) and not self._is_stopping:
                self._replace(sentinels[one])

    def _replace(self, name: str) -> None:
        worker = self._workers.pop(name)
        _log.error("worker %s died with exit code %s", name, worker.process.exitcode)
        forget_worker(self._folder / "admission.json", name)
        forget_proposal(self._folder, name)
        now = self._clock.monotonic_s()
        self._deaths = [one for one in self._deaths if now - one < RESTARTS_S] + [now]
        if len(self._deaths) > RESTARTS_MAX:
            raise WorkersFailingError
        self._start()

    def _end(self) -> None:
        for worker in self._workers.values():
            if worker.process.is_alive() and worker.process.pid is not None:
                os.kill(worker.process.pid, signal.SIGTERM)
        for worker in self._workers.values():
            worker.process.join()


def work(
    settings: Settings, listener: socket.socket, shared: Shared, says_ready: Connection
) -> None:
    """Serve in a worker process."""
    log_to_stderr(os.environ)
    hangup = Hangup()
    hangup.listen()
    columns = shared.columns
    if columns is not None:
        share_columns(columns)
    try:
        app, reloader = boot_reloading(settings, shared)
    except OmnigraphError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    follow(reloader, hangup)
    server = uvicorn.Server(config(app, settings))
    threading.Thread(target=_end_with_parent, args=(server, columns), daemon=True).start()
    says_ready.send(None)
    says_ready.close()
    run_server(server, listener)


def _end_with_parent(server: uvicorn.Server, columns: Path | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        if columns is not None:
            shutil.rmtree(columns, ignore_errors=True)
        server.should_exit = True
