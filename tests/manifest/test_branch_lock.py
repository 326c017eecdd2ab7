from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson
import pytest

from omnigraph.clock import Clock, SystemClock
from omnigraph.manifest.locks import branch_lock as lock_module
from omnigraph.manifest.locks.branch_lock import (
    BranchLockLostError,
    BranchLockTimeoutError,
    FairLock,
    take_all,
)
from omnigraph.manifest.locks.lease_locks import EXPIRE_S, LeaseBranchLocks
from omnigraph.manifest.locks.local_locks import LocalBranchLocks
from omnigraph.names import BranchName
from omnigraph.store.errors import WriteOutcomeUnknownError
from omnigraph.store.file_locks import LocalFileLocks
from omnigraph.store.objects.protocol import ObjectStore
from support.clocks import ManualClock
from support.faulty_store import FaultMode, FaultPlan, FaultyObjectStore
from support.memory_objects import MemoryObjectStore

DEV = BranchName("team/dev")
LEASE = "__leases/team%2Fdev.json"
NEVER_S = 3_600.0


def wait_until(is_true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.002)


# -- one process -----------------------------------------------------------------------------------


def test_a_fair_lock_is_handed_over_in_the_order_of_asking() -> None:
    lock, order = FairLock(), list[int]()
    assert lock.acquire(0)

    def work(number: int) -> None:
        assert lock.acquire(10)
        order.append(number)
        lock.release()

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        wait_until(lambda expected=number + 1: len(lock._waiting) == expected)
    lock.release()
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    assert lock.acquire(0)


def test_a_waiter_that_gives_up_leaves_the_line() -> None:
    lock = FairLock()
    assert lock.acquire(0)
    assert not lock.acquire(0.01)
    lock.release()
    assert lock.acquire(0)


def test_a_waiter_that_is_interrupted_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FairLock()
    assert lock.acquire(0)

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(lock_module.threading, "Event", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(1)
    monkeypatch.undo()
    lock.release()
    assert lock.acquire(0), "the lock was handed to somebody who had left"


# -- one machine -----------------------------------------------------------------------------------


def local(root: Path, clock: Clock | None = None, *, process: str = "") -> LocalBranchLocks:
    """Locks of one process; another `process` shares nothing but the files."""
    return LocalBranchLocks(
        root=f"{root}{process}", locks=LocalFileLocks(str(root)), clock=clock or SystemClock()
    )


def test_local_locks_exclude_each_other_per_branch(tmp_path: Path) -> None:
    one, other = local(tmp_path, process="1"), local(tmp_path, ManualClock(), process="2")
    with one.take(DEV, operation_id="A"):
        with pytest.raises(BranchLockTimeoutError), other.take(DEV, operation_id="B"):
            pass
        with other.take(BranchName("main"), operation_id="B") as lock:
            lock.check()
    with other.take(DEV, operation_id="B"):
        pass
    assert (tmp_path / "__leases" / "team%2Fdev.lock").exists()


def test_a_lock_ends_when_its_block_fails(tmp_path: Path) -> None:
    branch_locks = local(tmp_path)
    with pytest.raises(RuntimeError), branch_locks.take(DEV, operation_id="A"):
        raise RuntimeError
    with branch_locks.take(DEV, operation_id="B"):
        pass


_HOLDER = """
import sys, time
sys.path[:0] = {path!r}
from omnigraph.clock import SystemClock
from omnigraph.manifest.locks.local_locks import LocalBranchLocks
from omnigraph.names import BranchName
from omnigraph.store.file_locks import LocalFileLocks
root = {root!r}
with LocalBranchLocks(root=root, locks=LocalFileLocks(root), clock=SystemClock()).take(
    BranchName("team/dev"), operation_id="A"
):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def holding_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    code = _HOLDER.format(path=sys.path, root=str(root))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_lock_of_another_process_holds_and_dies_with_it(tmp_path: Path) -> None:
    with holding_process(tmp_path) as holder:
        with (
            pytest.raises(BranchLockTimeoutError, match="team/dev"),
            local(tmp_path, ManualClock()).take(DEV, operation_id="B"),
        ):
            pass
        holder.kill()
        holder.wait()
        with local(tmp_path).take(DEV, operation_id="B"):
            pass


def test_several_locks_are_taken_in_one_order(tmp_path: Path) -> None:
    """Two threads that want the same two locks, asked for in opposite order, never lock up."""
    names = [BranchName("a"), BranchName("b")]
    done = []

    def work(order: list[BranchName]) -> None:
        for _ in range(20):
            with take_all(local(tmp_path), order, operation_id="X") as lock:
                lock.check()
        done.append(order)

    threads = [threading.Thread(target=work, args=(order,)) for order in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(done) == 2


def test_a_lock_named_twice_is_taken_once(tmp_path: Path) -> None:
    with take_all(local(tmp_path), [DEV, DEV], operation_id="X"):
        pass


# -- many machines ---------------------------------------------------------------------------------


def machine(
    objects: ObjectStore, clock: Clock, name: str, *, renew_s: float = NEVER_S
) -> LeaseBranchLocks:
    """Another machine: it shares nothing with the others but the objects."""
    return LeaseBranchLocks(root=name, objects=objects, clock=clock, owner_id=name, renew_s=renew_s)


def lease(objects: ObjectStore) -> dict[str, object]:
    found: dict[str, object] = orjson.loads(objects.get(LEASE).data)
    return found


def test_a_lease_says_who_holds_it_and_is_marked_free_afterwards() -> None:
    objects, clock = MemoryObjectStore(), ManualClock()
    with machine(objects, clock, "m1").take(DEV, operation_id="A") as lock:
        assert lease(objects) == {"owner_id": "m1", "operation_id": "A", "counter": 0}
        lock.check()
    assert lease(objects) == {"owner_id": None, "operation_id": "A", "counter": 1}
    with machine(objects, clock, "m2").take(DEV, operation_id="B"):
        assert lease(objects) == {"owner_id": "m2", "operation_id": "B", "counter": 2}


def test_only_one_of_two_machines_creates_the_lease() -> None:
    objects = MemoryObjectStore()
    held, most = [0], [0]
    guard = threading.Lock()

    def work(name: str) -> None:
        for _ in range(5):
            with machine(objects, SystemClock(), name).take(DEV, operation_id=name):
                with guard:
                    held[0] += 1
                    most[0] = max(most[0], held[0])
                # Room for a second one to come in, if the lock let it.
                time.sleep(0.001)
                with guard:
                    held[0] -= 1

    threads = [threading.Thread(target=work, args=(f"m{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_a_silent_holder_is_taken_over_after_ten_seconds_of_the_waiters_clock() -> None:
    objects, holder_clock, waiter_clock = MemoryObjectStore(), ManualClock(), ManualClock()
    started = waiter_clock.monotonic_s()
    with ExitStack() as stack:
        late = stack.enter_context(machine(objects, holder_clock, "m1").take(DEV, operation_id="A"))
        with machine(objects, waiter_clock, "m2").take(DEV, operation_id="B"):
            waited = waiter_clock.monotonic_s() - started
            assert EXPIRE_S <= waited < EXPIRE_S + 1
            assert lease(objects)["owner_id"] == "m2"
            holder_clock.advance(EXPIRE_S)
            with pytest.raises(BranchLockLostError, match="team/dev"):
                late.check()
            stack.close()
            assert lease(objects)["owner_id"] == "m2", "the old holder gave away a foreign lease"


def test_a_renewed_lease_is_not_taken_over() -> None:
    objects, waiter_clock = MemoryObjectStore(), ManualClock()
    holder = machine(objects, SystemClock(), "m1", renew_s=0.002)

    class Slow(ManualClock):
        def sleep(self, seconds: float) -> None:
            seen = lease(objects)["counter"]
            wait_until(lambda: lease(objects)["counter"] != seen)
            super().sleep(seconds)

    waiter_clock = Slow()
    with (
        holder.take(DEV, operation_id="A") as lock,
        pytest.raises(BranchLockTimeoutError),
        machine(objects, waiter_clock, "m2").take(DEV, operation_id="B"),
    ):
        lock.check()
    assert waiter_clock.monotonic_s() - 1_000 > 10 * EXPIRE_S


def test_a_holder_notices_that_its_lease_was_replaced() -> None:
    objects = MemoryObjectStore()
    with machine(objects, SystemClock(), "m1", renew_s=0.002).take(DEV, operation_id="A") as lock:
        foreign = orjson.dumps({"owner_id": "m2", "operation_id": "B", "counter": 99})
        objects.put(LEASE, foreign)

        def is_lost() -> bool:
            try:
                lock.check()
            except BranchLockLostError:
                return True
            return False

        wait_until(is_lost)
    assert objects.get(LEASE).data == foreign


def test_a_holder_whose_renewals_fail_stops_in_time() -> None:
    clock = ManualClock()
    with machine(MemoryObjectStore(), clock, "m1").take(DEV, operation_id="A") as lock:
        clock.advance(EXPIRE_S - 2.5)
        lock.check()
        clock.advance(1)
        with pytest.raises(BranchLockLostError):
            lock.check()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b'{"owner_id": "x"}'])
def test_a_damaged_lease_runs_out_like_any_other(content: bytes) -> None:
    objects, clock = MemoryObjectStore(), ManualClock()
    objects.put(LEASE, content)
    started = clock.monotonic_s()
    with machine(objects, clock, "m1").take(DEV, operation_id="A"):
        assert clock.monotonic_s() - started >= EXPIRE_S
        assert lease(objects)["owner_id"] == "m1"


@pytest.mark.parametrize("number", [1, 2])
def test_a_lost_answer_neither_fails_a_lock_nor_makes_it_wait_for_itself(number: int) -> None:
    inner, clock = MemoryObjectStore(), ManualClock()
    with machine(inner, clock, "m0").take(DEV, operation_id="Z"):
        pass
    started = clock.monotonic_s()
    objects = FaultyObjectStore(inner, FaultPlan(at=number, mode=FaultMode.FAIL_AFTER))
    with machine(objects, clock, "m1").take(DEV, operation_id="A") as lock:
        lock.check()
        assert lease(inner)["owner_id"] == "m1"
    assert clock.monotonic_s() - started < 1
    if number == 1:
        assert lease(inner)["owner_id"] is None


def test_a_first_lease_whose_answer_was_lost_is_recognised() -> None:
    inner, clock = MemoryObjectStore(), ManualClock()
    objects = FaultyObjectStore(inner, FaultPlan(at=1, mode=FaultMode.FAIL_AFTER))
    with machine(objects, clock, "m1").take(DEV, operation_id="A"):
        assert lease(inner)["owner_id"] == "m1"
    assert clock.monotonic_s() - 1_000 < 1


def test_a_renewal_whose_answer_was_lost_keeps_the_lease() -> None:
    inner = MemoryObjectStore()
    plan = FaultPlan(at=2, mode=FaultMode.FAIL_AFTER)
    objects = FaultyObjectStore(inner, plan)
    with machine(objects, SystemClock(), "m1", renew_s=0.002).take(DEV, operation_id="A") as lock:
        wait_until(lambda: int(str(lease(inner)["counter"])) > 3)
        lock.check()
    assert plan.has_fired
    assert lease(inner)["owner_id"] is None


@pytest.mark.parametrize("mode", [FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER])
def test_a_lease_that_cannot_be_given_back_does_not_fail_finished_work(mode: FaultMode) -> None:
    inner = MemoryObjectStore()
    objects = FaultyObjectStore(inner, FaultPlan(at=2, mode=mode))
    with machine(objects, ManualClock(), "m1").take(DEV, operation_id="A"):
        pass
    with machine(inner, ManualClock(), "m2").take(DEV, operation_id="B"):
        assert lease(inner)["owner_id"] == "m2"


def test_an_unknown_outcome_is_never_what_a_lock_ends_with() -> None:
    """Every write of the lease may lose its answer; the caller never hears of it."""
    for number in range(1, 4):
        inner = MemoryObjectStore()
        objects = FaultyObjectStore(inner, FaultPlan(at=number, mode=FaultMode.FAIL_AFTER))
        try:
            with machine(objects, ManualClock(), "m1").take(DEV, operation_id="A"):
                pass
        except WriteOutcomeUnknownError:
            pytest.fail(f"write {number} came through")


def test_a_lock_that_is_taken_is_given_up_after_the_time_that_one_is_willing_to_wait(
    tmp_path: Path,
) -> None:
    branch_locks = LocalBranchLocks(
        root=str(tmp_path), locks=LocalFileLocks(str(tmp_path)), clock=SystemClock()
    )
    main = BranchName("main")
    assert branch_locks.takeover_s == 0.0
    with (
        branch_locks.take(main, operation_id="A"),
        pytest.raises(BranchLockTimeoutError),
        branch_locks.take(main, operation_id="B", wait_max_s=0.0),
    ):
        raise AssertionError("two holders of one lock")
    with branch_locks.take(main, operation_id="C", wait_max_s=0.0) as lock:
        lock.check()
