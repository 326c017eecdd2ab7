"""The fault-injecting wrappers: numbering, modes, sweeps."""

from __future__ import annotations

import inspect
from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import StorageUnavailableError, WriteOutcomeUnknownError
from omnigraph.store.objects.protocol import ObjectStore
from support.faulty_store import (
    Effect,
    FaultMode,
    FaultPlan,
    FaultyDatasetStore,
    FaultyObjectStore,
    ReadFault,
    SimulatedDeath,
    faulty,
    sweep,
)
from support.memory_objects import MemoryObjectStore
from support.people import LOCATION, ages, append, create, numbered, people


def two_puts(objects: ObjectStore) -> None:
    objects.put("a", b"1")
    objects.put_if_absent("b", b"2")


def under(plan: FaultPlan) -> tuple[MemoryObjectStore, FaultyObjectStore]:
    inner = MemoryObjectStore()
    return inner, FaultyObjectStore(inner, plan)


def names(objects: ObjectStore) -> list[str]:
    return [info.path for info in objects.list()]


def test_without_a_fault_effects_are_only_listed() -> None:
    plan = FaultPlan()
    inner, objects = under(plan)
    two_puts(objects)
    objects.get("a")
    objects.delete("a")
    assert names(inner) == ["b"]
    assert plan.effects == (
        Effect(1, "objects.put", "a"),
        Effect(2, "objects.put_if_absent", "b"),
        Effect(3, "objects.delete", "a"),
    )
    assert not plan.has_fired


def test_failing_before_does_nothing_and_the_rest_works() -> None:
    inner, objects = under(FaultPlan(at=1, mode=FaultMode.FAIL_BEFORE))
    with pytest.raises(StorageUnavailableError, match=r"injected before objects\.put"):
        objects.put("a", b"1")
    assert names(inner) == []
    objects.put("a", b"1")
    assert names(inner) == ["a"]


def test_failing_after_lands_and_says_unknown() -> None:
    inner, objects = under(FaultPlan(at=2, mode=FaultMode.FAIL_AFTER))
    with pytest.raises(WriteOutcomeUnknownError, match=r"injected after objects\.put_if_absent"):
        two_puts(objects)
    assert names(inner) == ["a", "b"]


@pytest.mark.parametrize(
    ("mode", "left"), [(FaultMode.DIE_BEFORE, []), (FaultMode.DIE_AFTER, ["a"])]
)
def test_the_dead_do_nothing_more(mode: FaultMode, left: list[str]) -> None:
    inner, objects = under(FaultPlan(at=1, mode=mode))

    def write_and_tidy_up() -> None:
        try:
            objects.put("a", b"1")
        except Exception:  # noqa: BLE001 - the point of the test: even this catches nothing
            objects.put("caught", b"")
        finally:
            objects.delete("a")

    with pytest.raises(SimulatedDeath):
        write_and_tidy_up()
    assert names(inner) == left
    with pytest.raises(SimulatedDeath):
        objects.list()


def test_a_sweep_hits_every_effect_once_and_ends() -> None:
    seen = []
    for plan in sweep(FaultMode.FAIL_AFTER):
        _, objects = under(plan)
        with suppress(WriteOutcomeUnknownError):
            two_puts(objects)
        seen.append((plan.has_fired, plan.effects[-1].name))
    assert seen == [
        (True, "objects.put"),
        (True, "objects.put_if_absent"),
        (False, "objects.put_if_absent"),
    ]


def test_a_sweep_over_an_endless_operation_is_stopped() -> None:
    def sweep_forever() -> None:
        for plan in sweep(FaultMode.FAIL_AFTER, effects_max=3):
            _, objects = under(plan)
            while not plan.has_fired:
                with suppress(WriteOutcomeUnknownError):
                    objects.put("a", b"1")

    with pytest.raises(AssertionError, match="more than 3 effects"):
        sweep_forever()


def test_reads_can_be_made_to_fail_by_name_and_path() -> None:
    plan = FaultPlan(reads=[ReadFault("objects.list", "__recovery")])
    _, objects = under(plan)
    assert objects.list("nodes") == ()
    with pytest.raises(StorageUnavailableError, match=r"injected in objects\.list"):
        objects.list("__recovery")
    assert plan.effects == ()


def test_latency_is_waited_for_on_the_clock() -> None:
    waited: list[float] = []

    class Clock:
        def now_us(self) -> int:
            return 0

        def monotonic_s(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            waited.append(seconds)

        def jitter(self, low: float, high: float) -> float:
            return (low + high) / 2

        def ulid(self) -> str:
            return "0" * 26

    _, objects = under(FaultPlan(latency_s=0.25, clock=Clock()))
    two_puts(objects)
    objects.head("a")
    assert waited == [0.25, 0.25, 0.25]


def test_both_halves_of_a_store_share_one_numbering(local_store: Store) -> None:
    plan = FaultPlan()
    store = faulty(local_store, plan)
    base = create(store, numbered(2))
    store.objects.put("__recovery/1.json", b"{}")
    append(store, base, people(["x"]))
    assert [(effect.number, effect.name) for effect in plan.effects] == [
        (1, "datasets.stage_create"),
        (2, "datasets.commit_staged"),
        (3, "datasets.stage_append"),
        (4, "datasets.commit_staged"),
        (5, "objects.put"),
        (6, "datasets.stage_append"),
        (7, "datasets.commit_staged"),
    ]
    assert plan.effects[4].path == "__recovery/1.json"
    assert plan.effects[5].path == LOCATION


@pytest.mark.parametrize("mode", [mode for mode in FaultMode if mode is not FaultMode.DELAY])
def test_a_swept_append_is_there_or_not_there(tmp_path: Path, mode: FaultMode) -> None:
    outcomes = []
    for number, plan in enumerate(sweep(mode)):
        plain = connect(str(tmp_path / f"{number}"), durability="process")
        base = create(plain, numbered(2))
        with suppress(SimulatedDeath, StorageUnavailableError, WriteOutcomeUnknownError):
            append(faulty(plain, plan), base, people(["x"]))
        reopened = connect(str(tmp_path / f"{number}"), durability="process")
        head = reopened.datasets.open(LOCATION).at
        outcomes.append("x" in ages(reopened, head))
    landed = mode in {FaultMode.FAIL_AFTER, FaultMode.DIE_AFTER}
    assert outcomes == [False, landed, True], "stage, commit, no fault"


READS = {
    "following",
    "open",
    "exists",
    "head_version",
    "versions",
    "torn_head",
    "torn_refs",
    "transactions",
    "linked_rows",
    "plan_compaction",
    "verify_staged_files",
    "list_branches",
    "needed_files",
    "branch_names",
    "has_branch",
    "has_versions_to_pack",
    "packed_versions",
    "unreferenced_files",
    "list_tags",
    "forget",
    "forget_all",
    "get",
    "leftovers",
    "head",
    "list",
}


@pytest.mark.parametrize(
    ("protocol", "wrapper"),
    [(DatasetStore, FaultyDatasetStore), (ObjectStore, FaultyObjectStore)],
)
def test_every_call_that_writes_is_an_effect(protocol: type, wrapper: type) -> None:
    for name, function in inspect.getmembers(protocol, inspect.isfunction):
        if name.startswith("_"):
            continue
        wrapped = getattr(wrapper, name)
        assert list(inspect.signature(wrapped).parameters) == list(
            inspect.signature(function).parameters
        ), name
        source = inspect.getsource(wrapped)
        assert ("effect(" in source or "_effect" in source) == (name not in READS), name
