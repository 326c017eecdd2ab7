"""Clocks that a test locks by hand, and clocks that are wrong."""

from __future__ import annotations

import threading
import uuid

from omnigraph.clock import SystemClock, encode_ulid

START_US = 1_750_000_000_000_000
DAY_S = 24 * 3600


class WrongClock(SystemClock):
    """The machine's clock, set to another time: of a machine that is wrong, or of a later day."""

    def __init__(self, ahead_s: float) -> None:
        super().__init__()
        self._ahead_us = round(ahead_s * 1_000_000)

    def now_us(self) -> int:
        return super().now_us() + self._ahead_us


class ManualClock:
    """Time stands still until somebody sleeps or calls `advance`; nothing is left to chance."""

    def __init__(self, *, now_us: int = START_US, first_ulid: int = 1) -> None:
        self._guard = threading.Lock()
        self._now_us = now_us
        self._monotonic_s = 1_000.0
        self._next_ulid = first_ulid

    def now_us(self) -> int:
        with self._guard:
            return self._now_us

    def monotonic_s(self) -> float:
        with self._guard:
            return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def jitter(self, low: float, high: float) -> float:
        return (low + high) / 2

    def ulid(self) -> str:
        return encode_ulid(*self.reserve_ulids(1))

    def reserve_ulids(self, count: int) -> tuple[int, int]:
        with self._guard:
            first = self._next_ulid
            self._next_ulid += count
            return START_US // 1_000, first

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.reserve_ulids(1)[1]))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._guard:
            self._monotonic_s += seconds
            self._now_us += round(seconds * 1_000_000)
