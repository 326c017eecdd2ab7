"""The only source of time, identifiers, waiting and randomness.

Everything that would make two runs of the same program differ comes from a `Clock`, so a test can
replace it and replay a run exactly.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from typing import Final, Protocol

_ULID_LENGTH: Final = 26
CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""The 32 digits of a ULID."""

_PAIRS: Final = tuple(first + second for first in CROCKFORD for second in CROCKFORD)
_PAIR_SHIFTS: Final = range(120, -1, -10)
_RANDOM_BITS: Final = 80
_RANDOM_MAX: Final = (1 << _RANDOM_BITS) - 1


class Clock(Protocol):
    """What the engine needs from the outside world apart from storage."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self, low: float, high: float) -> float:
        """Return a random number in `[low, high]`, to keep competing retries apart."""
        ...

    def ulid(self) -> str:
        """Return a new 26-character ULID, larger than every earlier one of this clock."""
        ...

    def uuid(self) -> str:
        """Return a new random UUID, the form in which Lance names transactions."""
        ...

    def reserve_ulids(self, count: int) -> tuple[int, int]:
        """Reserve `count` (at least one) consecutive new ULIDs.

        Returns their millisecond and the randomness of the first, for `encode_ulid`.
        """
        ...


class SystemClock:
    """The machine's clock. ULIDs are strictly increasing within one instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms = 0
        self._last_random = 0
        self._random = random.SystemRandom()

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, UTC."""
        return time.time_ns() // 1_000

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def jitter(self, low: float, high: float) -> float:
        """Return a random number in `[low, high]`."""
        return self._random.uniform(low, high)

    def ulid(self) -> str:
        """Return a new ULID, larger than every earlier one of this clock."""
        return encode_ulid(*self.reserve_ulids(1))

    def reserve_ulids(self, count: int) -> tuple[int, int]:
        """Reserve `count` (at least one) consecutive new ULIDs."""
        with self._lock:
            now_ms = self.now_us() // 1_000
            if now_ms <= self._last_ms and self._last_random + count <= _RANDOM_MAX:
                first = self._last_random + 1
            else:
                self._last_ms = max(now_ms, self._last_ms + 1)
                # Half of the range stays free, so that increments within one millisecond fit.
                first = int.from_bytes(os.urandom(10)) >> 1
            self._last_random = first + count - 1
            return self._last_ms, first

    def uuid(self) -> str:
        """Return a new random UUID."""
        return str(uuid.uuid4())


def encode_ulid(time_ms: int, randomness: int) -> str:
    """Spell 48 bits of time and 80 bits of randomness as a ULID.

    >>> encode_ulid(0, 31)
    '0000000000000000000000000Z'
    """
    value = (time_ms << _RANDOM_BITS) | randomness
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in _PAIR_SHIFTS])


def decode_ulid(text: str) -> int | None:
    """Return the 128 bits of a ULID; None for a text that is none.

    >>> decode_ulid("0000000000000000000000000Z"), decode_ulid("run 7")
    (31, None)
    """
    if len(text) != _ULID_LENGTH or not set(text) <= set(CROCKFORD):
        return None
    bits = 0
    for mark in text:
        bits = bits << 5 | CROCKFORD.index(mark)
    return bits if bits < 1 << 128 else None
