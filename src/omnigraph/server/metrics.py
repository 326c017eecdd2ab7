"""Counters in the text form of Prometheus.

Several workers write theirs to a folder, each to a file of its own, about once a second; the one
that is asked adds them up.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from starlette.responses import Response

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_WRITE_S: Final = 1.0
_REQUESTS: Final = "omnigraph_http_requests_total"
_SECONDS: Final = "omnigraph_http_request_seconds"


class Counts(msgspec.Struct):
    """The counters of one worker: by operation and status, and times by operation."""

    requests: dict[str, dict[int, int]] = {}
    times: dict[str, list[int]] = {}
    seconds: dict[str, float] = {}

    def add(self, other: Counts) -> None:
        """Add the counters of another worker."""
        for operation, statuses in other.requests.items():
            own = self.requests.setdefault(operation, {})
            for status, count in statuses.items():
                own[status] = own.get(status, 0) + count
        for operation, times in other.times.items():
            known = self.times.get(operation, [0] * len(times))
            self.times[operation] = [a + b for a, b in zip(known, times, strict=True)]
            self.seconds[operation] = self.seconds.get(operation, 0.0) + other.seconds[operation]

    def lines(self) -> Iterator[str]:
        """Yield one line per counter."""
        yield f"# HELP {_REQUESTS} Answers by operation and status."
        yield f"# TYPE {_REQUESTS} counter"
        for operation, statuses in sorted(self.requests.items()):
            for status, count in sorted(statuses.items()):
                yield f'{_REQUESTS}{{operation="{operation}",status="{status}"}} {count}'
        yield f"# HELP {_SECONDS} Time until an answer began."
        yield f"# TYPE {_SECONDS} histogram"
        for operation, counts in sorted(self.times.items()):
            total = 0
            for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                total += count
                yield f'{_SECONDS}_bucket{{operation="{operation}",le="{bound}"}} {total}'
            yield f'{_SECONDS}_sum{{operation="{operation}"}} {self.seconds[operation]:.6f}'
            yield f'{_SECONDS}_count{{operation="{operation}"}} {total}'


class Metrics:
    """Requests by operation and status, and how long they took to be answered."""

    def __init__(self, folder: Path | None = None, worker: str = "0") -> None:
        self._guard = threading.Lock()
        self._counts = Counts({}, {}, {})
        self._folder = folder
        self._file = None if folder is None else folder / f"metrics-{worker}.json"
        self._written = 0.0

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one answer."""
        counts = self._counts
        with self._guard:
            statuses = counts.requests.setdefault(operation, {})
            statuses[status] = statuses.get(status, 0) + 1
            times = counts.times.setdefault(operation, [0] * (len(BUCKETS_S) + 1))
            times[bisect_left(BUCKETS_S, seconds)] += 1
            counts.seconds[operation] = counts.seconds.get(operation, 0.0) + seconds
            if self._file is not None and time.monotonic() - self._written > _WRITE_S:
                self._write(self._file)

    def answer(self, more: Iterable[str] = ()) -> Response:
        """Return all counters of all workers, and more lines."""
        lines = (*self._total().lines(), *more)
        return Response("\n".join(lines) + "\n", media_type=_MEDIA_TYPE)

    def _total(self) -> Counts:
        total = Counts({}, {}, {})
        with self._guard:
            if self._folder is None or self._file is None:
                total.add(self._counts)
                return total
            self._write(self._file)
        for path in sorted(self._folder.glob("metrics-*.json")):
            total.add(msgspec.json.decode(path.read_bytes(), type=Counts))
        return total

    def _write(self, path: Path) -> None:
        """Write the counters to the file of this worker, whole or not at all."""
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._counts))
        new.replace(path)
        self._written = time.monotonic()
