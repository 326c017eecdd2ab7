"""Policies and stored queries of a running server follow their files.

1. What the files say is read as one value and takes effect as one: a request sees all of the old or
   all of the new. A request in flight ends with what it began with.
2. Files that do not load change nothing; the log says why.
3. Whether a server has a policy is settled at its start, and so is its state.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Registry, load_queries, require_queries_hold
from omnigraph.policy import Policy, PolicyKind
from omnigraph.server.access import Gate, Mode
from omnigraph.server.call import Serving
from omnigraph.server.graphs import Graphs
from omnigraph.server.settings import Settings

CHECK_S: Final = 0.5
"""How often the files are looked at."""
_SIGNAL_STEP_S: Final = 0.1
"""How often a signal is looked for."""
Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Declared:
    """What the files of a server say."""

    policy: Policy | None
    server_policy: Policy | None
    queries: Registry


@dataclass(frozen=True)
class Sources:
    """The files of a server that may change while it runs."""

    graph_id: str
    policy: Path | None = None
    server_policy: Path | None = None
    queries: tuple[Path, ...] = ()

    @classmethod
    def of(cls, settings: Settings, graph_id: str) -> Sources:
        """Return the files that the settings name."""
        return cls(graph_id, settings.policy, settings.server_policy, settings.queries)

    def read(self) -> Declared:
        """Read all files, or raise."""
        return Declared(
            None if self.policy is None else Policy.load(self.policy, graph_id=self.graph_id),
            None
            if self.server_policy is None
            else Policy.load(self.server_policy, kind=PolicyKind.SERVER),
            load_queries(self.queries),
        )

    def stamp(self) -> Stamp:
        """Return what changes when a file is written, comes or goes."""
        return tuple(_stamps(self._files()))

    def _files(self) -> Iterator[Path]:
        yield from (path for path in (self.policy, self.server_policy) if path is not None)
        for path in self.queries:
            yield from sorted(path.glob("**/*.gq")) if path.is_dir() else [path]


def _stamps(files: Iterator[Path]) -> Iterator[tuple[str, int, int, int]]:
    for file in files:
        try:
            found = file.stat()
        except OSError:
            yield str(file), 0, 0, 0
        else:
            yield str(file), found.st_mtime_ns, found.st_size, found.st_ino


class Reloader(Protocol):
    """Keeps what a server serves up to date."""

    @property
    def check_s(self) -> float:
        """How often to look."""
        ...

    def refresh(self, *, is_asked_for: bool = False) -> bool:
        """Look for changes; return whether there were some."""
        ...


def follow(reloader: Reloader, hangup: Hangup, clock: Clock | None = None) -> None:
    """Look for changes from now on, in a thread of its own."""
    waiting = clock or SystemClock()

    def run() -> None:
        while True:
            hangup.wait(waiting, reloader.check_s)
            try:
                reloader.refresh(is_asked_for=hangup.take())
            except Exception:  # noqa: BLE001 - without this thread no later change would be seen
                _log.exception("looking for changes failed in a way that was not foreseen")

    threading.Thread(target=run, name="omnigraph-reload", daemon=True).start()


class FileReloader:
    """Reads the files of a server again when they change, or when it is asked to."""

    def __init__(
        self,
        serving: Serving,
        mode: Mode,
        sources: Sources,
        seen: Stamp,
    ) -> None:
        """Take the stamp of the files that the server was started with."""
        self._serving = serving
        self._mode = mode
        self._sources = sources
        self._seen = seen
        self._guard = threading.Lock()

    @property
    def check_s(self) -> float:
        """How often the files are looked at."""
        return CHECK_S

    def refresh(self, *, is_asked_for: bool = False) -> bool:
        """Read the files if they have changed; return whether what they say holds now."""
        with self._guard:
            stamp = self._sources.stamp()
            if stamp == self._seen and not is_asked_for:
                return False
            self._seen = stamp
            try:
                self._put(self._sources.read())
            except (OmnigraphError, OSError) as error:
                _log.error("policies and stored queries stay as they were: %s", error)
                return False
        _log.info("policies and stored queries read again")
        return True

    def _put(self, declared: Declared) -> None:
        served = self._serving.graphs.get(self._sources.graph_id)
        require_queries_hold(declared.queries, served.graph.schema_source())
        changed = replace(
            served,
            graph=served.graph.with_policy(declared.policy),
            gate=Gate(self._mode, declared.policy),
            queries=declared.queries,
        )
        gate = Gate(self._mode, declared.server_policy)
        self._serving.graphs = Graphs({served.graph_id: changed}, gate)


class Hangup:
    """Notes that SIGHUP has arrived. A handler of signals may take no lock: it sets a field."""

    def __init__(self) -> None:
        self._is_set = False

    def listen(self) -> None:
        """Take the signal instead of ending; in the main thread only."""
        signal.signal(signal.SIGHUP, self._note)
        # The parent of a worker blocks the signal until the worker can take it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def _note(self, *_: object) -> None:
        self._is_set = True

    def wait(self, clock: Clock, seconds: float) -> None:
        """Wait so long, or until the signal arrives."""
        end = clock.monotonic_s() + seconds
        while not self._is_set and (left := end - clock.monotonic_s()) > 0:
            clock.sleep(min(left, _SIGNAL_STEP_S))

    def take(self) -> bool:
        """Return whether the signal has arrived since the last call."""
        was_set, self._is_set = self._is_set, False
        return was_set
