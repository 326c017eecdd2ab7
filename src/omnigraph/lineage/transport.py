"""Where events go: a folder of JSON files, or a server of OpenLineage.

| target | what happens |
|---|---|
| `file:DIR` | one file per event: `<commit id>.json`, `<run id>.start.json` |
| `http://…`, `https://…` | each event is posted by OpenLineage's own client (extra `lineage`) |
| `openlineage` | the client's own settings decide (`OPENLINEAGE_URL`, `openlineage.yml`: Kafka …) |

A transport that fails is a warning: the commit has its lineage, and `omnigraph lineage emit` sends
it again.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, Self

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.lineage.openlineage import Event, end_event, events_of, start_event, to_bytes
from omnigraph.lineage.record import Job, runtime
from omnigraph.manifest import GraphCommit
from omnigraph.texts import shown

_log = logging.getLogger(__name__)

TARGET_NAME: Final = "OMNIGRAPH_LINEAGE"
_FILE: Final = "file:"
_CLIENT: Final = "openlineage"
_PENDING_MAX: Final = 1_000
_CLOSE_S: Final = 10.0


class LineageTargetError(InvalidInputError):
    """Events cannot be sent to a target: it is none, or its library is not installed."""

    code = "OG-LINEAGE-TARGET"
    hint = "`--to file:DIR` writes files; `pip install 'omnigraph[lineage]'` sends to a server"
    template = "lineage target '{target}': {problem}"
    target: str
    problem: str


class NoLineageTargetError(NotFoundError):
    """Events are to be sent, and nothing says where to."""

    code = "OG-NO-LINEAGE-TARGET"
    hint = "`--to file:DIR|URL`, or set OMNIGRAPH_LINEAGE"
    template = "no target for lineage events: give `--to file:DIR|URL`, or set OMNIGRAPH_LINEAGE"


class Transport(Protocol):
    """Takes events; raises `OSError` or `ValueError` when one cannot be delivered."""

    @property
    def is_slow(self) -> bool:
        """Whether a commit should not wait for it."""
        ...

    def send(self, event: Event) -> None:
        """Deliver one event."""
        ...


@dataclass(frozen=True)
class FileTransport:
    """Writes each event to a file of its own; the same event again writes the same file."""

    folder: Path
    is_slow: bool = False

    def send(self, event: Event) -> None:
        """Write one event."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _file_name(event)
        waiting = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        waiting.write_bytes(to_bytes(event) + b"\n")
        waiting.replace(path)


def _file_name(event: Event) -> str:
    commit = event["run"].get("facets", {}).get("omnigraph_commit")
    if commit is not None:
        return f"{commit['commit']}.json"
    return f"{event['run']['runId']}.{event['eventType'].lower()}.json"


@dataclass(frozen=True)
class ClientTransport:
    """Hands events to a transport of OpenLineage's client."""

    client: Any
    is_slow: bool = True

    def send(self, event: Event) -> None:
        """Send one event."""
        try:
            self.client.emit(event)
        except Exception as error:
            # Any of several libraries may be behind it.
            raise OSError(str(error)) from error


def transport_of(target: str) -> Transport:
    """Return the transport of a target, or raise if there is no such target."""
    if target.startswith(_FILE):
        folder = target.removeprefix(_FILE).removeprefix("//")
        if not folder:
            raise LineageTargetError(target, "names no folder")
        try:
            return FileTransport(Path(folder).expanduser().absolute())
        except (OSError, RuntimeError) as error:
            raise LineageTargetError(target, str(error)) from error
    if target == _CLIENT:
        return ClientTransport(_client_transport(target, None))
    if target.startswith(("http://", "https://")):
        return ClientTransport(_client_transport(target, {"type": "http", "url": target}))
    raise LineageTargetError(shown(target), "expected file:DIR, an http URL, or openlineage")


def _client_transport(target: str, config: dict[str, str] | None) -> Any:
    try:
        from openlineage.client import OpenLineageClient  # noqa: PLC0415 - an optional library
    except ImportError as error:
        problem = "needs OpenLineage's client: pip install 'omnigraph[lineage]'"
        raise LineageTargetError(shown(target), problem) from error
    settings: dict[str, Any] | None = None if config is None else {"transport": config}
    try:
        return OpenLineageClient(config=settings).transport
    except Exception as error:
        # Any of several libraries may be behind it.
        raise LineageTargetError(shown(target), shown(str(error))) from error


# -- sending while working ------------------------------------------------------------------------


class LiveEvents:
    """Sends events while jobs work; a failure is a warning. Safe to share between threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._guard = threading.Lock()
        self._waiting: queue.Queue[Event] = queue.Queue(_PENDING_MAX)
        self._worker: threading.Thread | None = None

    def started(self, job: Job, operation: str, *, at_us: int, **facts: Any) -> None:
        """Report that a long job begins."""
        self._send(start_event(job, operation, at_us=at_us, engine=runtime("local"), **facts))

    def ended(
        self, job: Job, operation: str, *, at_us: int, error: str | None = None, **facts: Any
    ) -> None:
        """Report that a job ended without a commit."""
        self._send(
            end_event(job, operation, at_us=at_us, engine=runtime("local"), error=error, **facts)
        )

    def committed(self, commit: GraphCommit, root: str) -> None:
        """Report what a commit says; its `START` was sent when the job began."""
        for event in events_of(commit, root)[-1:]:
            self._send(event)

    def flush(self) -> None:
        """Wait until everything is sent, for a bounded time."""
        with self._guard:
            worker = self._worker
        if worker is not None:
            worker.join(_CLOSE_S)

    def _send(self, event: Event) -> None:
        if not self._transport.is_slow:
            self._deliver(event)
            return
        with self._guard:
            try:
                self._waiting.put_nowait(event)
            except queue.Full:
                _log.warning("a lineage event is dropped: %s wait already", _PENDING_MAX)
                return
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="lineage", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while True:
            with self._guard:
                if self._waiting.empty():
                    self._worker = None
                    return
                event = self._waiting.get_nowait()
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        try:
            self._transport.send(event)
        except (OSError, ValueError) as error:
            _log.warning("a lineage event was not sent: %s", shown(str(error)))


class LongJob:
    """Reports when a long job begins, and how it ends if it makes no commit.

    The commit of a job reports its end. `begin` may be called late, or never.
    """

    def __init__(
        self,
        live: LiveEvents | None,
        job: Job,
        operation: str,
        now_us: Callable[[], int],
        *,
        file: str | None = None,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`hide` takes secrets that only the caller knows out of the text of an error."""
        self._live, self._job, self._operation = live, job, operation
        self._now_us, self._file, self._hide = now_us, file, hide
        self._has_begun = False
        self.has_commit = False
        self.error: str | None = None
        """Why the job has failed, where it says so without raising."""

    def begin(self, at_us: int | None = None) -> None:
        """Report that the job begins."""
        if self._live is not None:
            self._has_begun = True
            at_us = self._now_us() if at_us is None else at_us
            self._live.started(self._job, self._operation, at_us=at_us, file=self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if self._live is None or not self._has_begun or self.has_commit:
            return
        failure = self.error
        if error is not None:
            failure = shown(self._hide(str(error) or type(error).__name__))
        self._live.ended(
            self._job, self._operation, at_us=self._now_us(), error=failure, file=self._file
        )


def live_events(environ: Mapping[str, str] | None = None) -> LiveEvents | None:
    """Return what sends events in this process, if the environment asks for it.

    A target that cannot be used is a warning: writes go on without events.
    """
    target = (os.environ if environ is None else environ).get(TARGET_NAME, "")
    return _live(target) if target else None


@cache
def _live(target: str) -> LiveEvents | None:
    try:
        return LiveEvents(transport_of(target))
    except LineageTargetError as error:
        _log.warning("no lineage events are sent: %s", error)
        return None


# -- sending again --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Emitted:
    """How many events were sent, and how many were not."""

    target: str
    sent: int = 0
    failed: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        return dict(vars(self))


def emit_events(target: str | None, events: Iterable[Event]) -> Emitted:
    """Send events to a target, by default to that of the environment."""
    to = target or os.environ.get(TARGET_NAME)
    if not to:
        raise NoLineageTargetError
    transport = transport_of(to)
    sent = failed = 0
    for event in events:
        try:
            transport.send(event)
            sent += 1
        except (OSError, ValueError) as error:
            failed += 1
            _log.warning("a lineage event was not sent: %s", shown(str(error)))
    return Emitted(shown(to), sent, failed)
