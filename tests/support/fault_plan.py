"""What fails, and when: effects of a store are numbered, and one of them is chosen.

The wrappers that ask a plan before every call are in `support.faulty_store`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from omnigraph.clock import Clock, SystemClock
from omnigraph.store.errors import StorageUnavailableError, WriteOutcomeUnknownError

_EFFECTS_MAX: Final = 10_000

_Answer = TypeVar("_Answer")


class SimulatedDeath(BaseException):
    """The process is gone. Derived from `BaseException`, so that no handler brings it back."""


class FaultMode(StrEnum):
    """What happens at the chosen effect."""

    FAIL_BEFORE = "fail before"
    FAIL_AFTER = "fail after"
    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    DELAY = "delay"
    """It takes so long that others act in between; then it happens."""


@dataclass(frozen=True)
class Effect:
    """One call that writes."""

    number: int
    name: str
    """`objects.put`, `datasets.commit_staged`, …"""
    path: str


@dataclass(frozen=True)
class ReadFault:
    """Lets a read fail: every call of this name, on paths that begin with `prefix`."""

    name: str
    """`objects.list`, `datasets.open`, …"""
    prefix: str = ""


class FaultPlan:
    """Numbers effects and fails at one of them. Shared by the wrappers of one store."""

    def __init__(
        self,
        *,
        at: int | None = None,
        mode: FaultMode = FaultMode.FAIL_BEFORE,
        reads: Sequence[ReadFault] = (),
        latency_s: float = 0.0,
        meanwhile: Callable[[], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Choose an effect; `meanwhile` is what happens elsewhere while it is delayed."""
        self._meanwhile = meanwhile
        self._at = at
        self._mode = mode
        self._reads = tuple(reads)
        self._latency_s = latency_s
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._effects: list[Effect] = []
        self._is_dead = False
        self._has_fired = False

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every effect seen so far, the faulty one included."""
        with self._lock:
            return tuple(self._effects)

    @property
    def has_fired(self) -> bool:
        """Whether the chosen effect came up."""
        return self._has_fired

    def effect(self, name: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        """Run a call that writes."""
        is_chosen = self._number(name, path)
        self._wait()
        if not is_chosen:
            return call()
        if self._mode is FaultMode.FAIL_BEFORE:
            raise StorageUnavailableError(path=path, reason=f"injected before {name}")
        if self._mode is FaultMode.DIE_BEFORE:
            self._die(name, path)
        if self._mode is FaultMode.DELAY:
            if self._meanwhile is not None:
                self._meanwhile()
            return call()
        answer = call()
        if self._mode is FaultMode.DIE_AFTER:
            self._die(name, path)
        del answer
        raise WriteOutcomeUnknownError(path=path, reason=f"injected after {name}")

    def read(self, name: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        """Run a call that only reads."""
        self._check_alive(name, path)
        self._wait()
        if any(fault.name == name and path.startswith(fault.prefix) for fault in self._reads):
            raise StorageUnavailableError(path=path, reason=f"injected in {name}")
        return call()

    def _number(self, name: str, path: str) -> bool:
        self._check_alive(name, path)
        with self._lock:
            effect = Effect(len(self._effects) + 1, name, path)
            self._effects.append(effect)
            is_chosen = effect.number == self._at
            self._has_fired = self._has_fired or is_chosen
        return is_chosen

    def _check_alive(self, name: str, path: str) -> None:
        if self._is_dead:
            raise SimulatedDeath(f"{name} {path}: the process is already dead")

    def _die(self, name: str, path: str) -> None:
        self._is_dead = True
        raise SimulatedDeath(f"{self._mode}: {name} {path}")

    def _wait(self) -> None:
        if self._latency_s:
            self._clock.sleep(self._latency_s)


def sweep(mode: FaultMode, *, effects_max: int = _EFFECTS_MAX) -> Iterator[FaultPlan]:
    """Yield plans that fail at effect 1, 2, 3 … until one comes back that never fired."""
    for number in itertools.count(1):
        if number > effects_max:
            raise AssertionError(f"the operation has more than {effects_max} effects")
        plan = FaultPlan(at=number, mode=mode)
        yield plan
        if not plan.has_fired:
            return
