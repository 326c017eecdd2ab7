"""One life of a handle: its storage, its clock and its locks, all of which give control back.

A handle stands for a process. It has a store of its own, with caches and a Lance session of its
own, and shares only files with others. It can be slow, be paused for longer than any lease, or die
at any effect; then nothing of it has an effect any more, and its locks are free as the operating
system would have it. Its leases stay and run out.
"""

from __future__ import annotations

import functools
import pkgutil
import random
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, TypeVar, cast

import omnigraph
from omnigraph.clock import encode_ulid
from omnigraph.graph import Graph
from omnigraph.graph.opening import open_for_writing
from omnigraph.manifest import OpenMode, init_repository, open_read_only
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.manifest.locks.branch_lock import BranchLocks
from omnigraph.manifest.locks.lease_locks import LeaseBranchLocks
from omnigraph.manifest.locks.local_locks import LocalBranchLocks
from omnigraph.schema import compile_schema
from omnigraph.store import Store, connect
from omnigraph.store.file_locks import HeldLock
from omnigraph.store.objects.protocol import ObjectInfo
from omnigraph.store.records import VersionInfo
from sim.scheduler import Scheduler, Task
from support.fault_plan import FaultPlan
from support.faulty_store import SimulatedDeath, faulty
from support.places import graph_on

LockKind = Literal["leases", "locks"]
_NEVER_S: Final = 1e9
"""The thread that renews leases waits in real time: here it never gets to it."""
_LOCK_POLL_MAX_S: Final = 4.0
_SLOW: Final = 0.1
_PAUSE: Final = 0.003
_PAUSE_BEFORE_PUBLISH: Final = 0.12
"""Where a pause is worst: everything has been looked at and nothing has been done yet."""
_DEATH: Final = 0.003
_DATED: Final = frozenset(
    {
        "objects.head",
        "objects.leftovers",
        "objects.list",
        "datasets.unreferenced_files",
        "datasets.versions",
    }
)

_ROOMS_OF_HANDLES: Final = frozenset(
    {
        "changes",
        "graph",
        "lineage",
        "maintenance",
        "manifest",
        "merge",
        "query",
        "read",
        "recovery",
        "schema",
        "search",
        "store",
        "write",
    }
)

_Answer = TypeVar("_Answer")


@dataclass
class Fate:
    """What may still happen to the handles of a schedule."""

    pauses: int
    deaths: int
    has_paused: bool = False


class Life:
    """What a handle does between it is opened and its end."""

    def __init__(
        self,
        scheduler: Scheduler,
        task: Task,
        chance: random.Random,
        fate: Fate,
        locks: dict[str, Life],
        *,
        name: str,
    ) -> None:
        self.name = name
        self.chance = chance
        self.scheduler = scheduler
        self.task = task
        self.locks = locks
        self.is_dead = False
        self.skew_s = 0.0
        self.failed_locks = 0
        self._fate = fate
        self._thread = threading.get_ident()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is the one that takes part in the schedule."""
        return threading.get_ident() == self._thread

    def check_alive(self) -> None:
        if self.is_dead:
            raise SimulatedDeath(f"{self.name} is dead")

    def pass_by(self, name: str, path: str) -> None:
        """Give control back before a call; sometimes for long."""
        self.check_alive()
        if not self.is_mine:
            # The handle's own thread waits for this one meanwhile.
            return
        self.scheduler.note(f"{self.name} {name} {_short(path)}")
        is_publish = (name, path) == ("datasets.commit_staged", MANIFEST)
        likely = _PAUSE_BEFORE_PUBLISH if is_publish else _PAUSE
        draw = self.chance.random()
        if draw < likely and self._fate.pauses:
            self._fate.pauses -= 1
            self.pause(self.chance.uniform(12.0, 45.0))
        elif draw < likely + _SLOW:
            self.wait(self.chance.uniform(0.02, 0.3))
        else:
            self.wait(self.chance.uniform(0.0005, 0.008))

    def pause(self, seconds: float) -> None:
        """Be stopped for longer than a lease lasts."""
        self._fate.has_paused = True
        self.scheduler.note(f"{self.name} is paused for {seconds:.0f} s")
        self.wait(seconds)

    def wait(self, seconds: float) -> None:
        self.scheduler.wait(self.task, seconds)
        self.check_alive()

    def may_die(self) -> bool:
        """Draw whether the handle dies at the effect that comes now."""
        if not self.is_mine or not self._fate.deaths or self.chance.random() >= _DEATH:
            return False
        self._fate.deaths -= 1
        return True

    def die(self, where: str) -> None:
        self.scheduler.note(f"{self.name} dies {where}")
        self.end()
        raise SimulatedDeath(where)

    def end(self) -> None:
        """Let go of what the operating system gives back."""
        self.is_dead = True
        for path in [path for path, holder in self.locks.items() if holder is self]:
            del self.locks[path]


class SimulatedPlan(FaultPlan):
    """Lets every call of a store pass by the scheduler."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def effect(self, name: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        self._life.pass_by(name, path)
        if not self._life.may_die():
            return call()
        if self._life.chance.random() < 0.5:
            self._life.die(f"before {name} {_short(path)}")
        call()
        self._life.die(f"after {name} {_short(path)}")
        raise AssertionError("a dead handle goes on")

    def read(self, name: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        self._life.pass_by(name, path)
        answer = call()
        return self._dated(answer) if name in _DATED else answer

    def _dated(self, answer: _Answer) -> _Answer:
        """Move the times of files, which are real, into the time of the schedule."""
        in_virtual_time = self._life.scheduler.in_virtual_time
        if isinstance(answer, ObjectInfo):
            moved = replace(answer, modified_us=in_virtual_time(answer.modified_us))
            return cast("_Answer", moved)
        if isinstance(answer, VersionInfo):
            moved_version = replace(answer, created_us=in_virtual_time(answer.created_us))
            return cast("_Answer", moved_version)
        if isinstance(answer, tuple):
            return cast("_Answer", tuple(self._dated(each) for each in answer))
        return answer


class SimulatedClock:
    """A `Clock` whose waits give control back, and whose wall clock may be wrong."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._last_ms = 0
        self._last_random = 0

    def now_us(self) -> int:
        return self._life.scheduler.now_us + round(self._life.skew_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self._life.scheduler.now_s + 1_000.0

    def sleep(self, seconds: float) -> None:
        life = self._life
        life.check_alive()
        if life.failed_locks:
            # Nobody gets a lock earlier by looking more often.
            seconds = max(seconds, min(0.005 * 2**life.failed_locks, _LOCK_POLL_MAX_S))
        life.wait(seconds)

    def jitter(self, low: float, high: float) -> float:
        return self._life.chance.uniform(low, high)

    def ulid(self) -> str:
        return encode_ulid(*self.reserve_ulids(1))

    def reserve_ulids(self, count: int) -> tuple[int, int]:
        now_ms = self.now_us() // 1_000
        if now_ms <= self._last_ms:
            first = self._last_random + 1
        else:
            self._last_ms, first = now_ms, self._life.chance.getrandbits(79)
        self._last_random = first + count - 1
        return self._last_ms, first

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._life.chance.getrandbits(128), version=4))


class SimulatedLocks:
    """`flock` among the handles of a schedule: kept while paused, lost by dying."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def try_lock(self, path: str) -> HeldLock | None:
        life = self._life
        life.pass_by("locks.try", path)
        if path in life.locks:
            life.failed_locks += 1
            return None
        life.failed_locks = 0
        life.locks[path] = life
        return _SimulatedLock(life, path)


class _SimulatedLock(HeldLock):
    def __init__(self, life: Life, path: str) -> None:
        super().__init__(-1)
        self._life = life
        self._path = path

    def release(self) -> None:
        if self._life.locks.get(self._path) is self._life:
            del self._life.locks[self._path]


def make_graph(life: Life, root: Path, schema: str) -> None:
    """Make a new graph whose ids come from the life's chance."""
    clock = SimulatedClock(life)
    store = faulty(connect(str(root), durability="process"), SimulatedPlan(life))
    init_repository(store, clock, compile_schema(schema, domain=clock.ulid()))


def open_graph(
    life: Life, root: Path, kind: LockKind, *, mode: OpenMode = OpenMode.READ_WRITE
) -> Graph:
    """Open a graph as `Graph.open` does, on storage that gives control back."""
    store = faulty(connect(str(root), durability="process"), SimulatedPlan(life))
    clock = SimulatedClock(life)
    if mode is OpenMode.READ_ONLY:
        return graph_on(open_read_only(store, clock), mode=mode, auto_optimize=False)
    branch_locks = _branch_locks(life, store, clock, kind)
    repository, recovery = open_for_writing(store, clock, branch_locks=branch_locks)
    recovery.drop_torn_branch(MAIN_INCARNATION)
    return graph_on(repository, recovery=recovery, auto_optimize=False)


def cached_property_locks() -> Iterator[functools.cached_property[object]]:
    """Yield what Python 3.11 locks for all instances of a class, while one of them is computed.

    A handle that is paused inside of one would stop the thread of another one, which no process
    can do to another.
    """
    # Modules that load late would come after this.
    for module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
        if module.name.split(".")[1] in _ROOMS_OF_HANDLES:
            import_module(module.name)
    for loaded in [each for name, each in sys.modules.items() if name.startswith("omnigraph")]:
        for owner in [each for each in vars(loaded).values() if isinstance(each, type)]:
            for attribute in vars(owner).values():
                if isinstance(attribute, functools.cached_property) and hasattr(attribute, "lock"):
                    yield attribute


def _branch_locks(life: Life, store: Store, clock: SimulatedClock, kind: LockKind) -> BranchLocks:
    # Handles stand for processes: what orders writers inside of one process must not order them.
    root = f"{store.settings.root}#{life.name}"
    if kind == "locks":
        return LocalBranchLocks(root=root, locks=SimulatedLocks(life), clock=clock)
    return LeaseBranchLocks(
        root=root, objects=store.objects, clock=clock, owner_id=clock.ulid(), renew_s=_NEVER_S
    )


def _short(path: str) -> str:
    """Return a path without the names that Lance draws by itself."""
    return "/".join(path.split("/")[:2])
