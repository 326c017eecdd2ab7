"""Counters in the text form of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

from starlette.responses import Response

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests by operation and status, and how long they took to be answered."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one answer."""
        with self._guard:
            key = operation, status
            self._requests[key] = self._requests.get(key, 0) + 1
            times = self._times.setdefault(operation, [0] * (len(BUCKETS_S) + 1))
            times[bisect_left(BUCKETS_S, seconds)] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds

    def answer(self) -> Response:
        """Return all counters."""
        return Response("\n".join(self.lines()) + "\n", media_type=_MEDIA_TYPE)

    def lines(self) -> list[str]:
        """Return one line per counter."""
        with self._guard:
            requests, times = dict(self._requests), {k: list(v) for k, v in self._times.items()}
            seconds = dict(self._seconds)
        name = "omnigraph_http_requests_total"
        lines = [f"# HELP {name} Answers by operation and status.", f"# TYPE {name} counter"]
        lines += [
            f'{name}{{operation="{operation}",status="{status}"}} {count}'
            for (operation, status), count in sorted(requests.items())
        ]
        name = "omnigraph_http_request_seconds"
        lines += [f"# HELP {name} Time until an answer began.", f"# TYPE {name} histogram"]
        for operation, counts in sorted(times.items()):
            total = 0
            for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{operation="{operation}",le="{bound}"}} {total}')
            lines.append(f'{name}_sum{{operation="{operation}"}} {seconds[operation]:.6f}')
            lines.append(f'{name}_count{{operation="{operation}"}} {total}')
        return lines
