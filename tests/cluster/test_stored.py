"""Stored objects: strict reading, conditional writing, locks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.clock import SystemClock
from omnigraph.cluster.addresses import policy_address
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.diagnostics import DiagnosedError
from omnigraph.cluster.stored import lock
from omnigraph.cluster.stored.catalog import blob_path, digest_of, read_blob, write_blob
from omnigraph.cluster.stored.intents import read_intents, write_intent
from omnigraph.cluster.stored.ledger import (
    EMPTY,
    LEDGER_PATH,
    AppliedResources,
    ApprovalRecord,
    BlobPolicy,
    Entry,
    GraphObservation,
    Ledger,
    RecoveryRecord,
    Status,
    Tombstone,
    read_ledger,
    spell_ledger,
    write_ledger,
)
from omnigraph.cluster.stored.root import StorageRoot, open_root
from support.clusters import SCHEMA, Folder, an_intent, succeeded
from support.fault_plan import FaultMode, FaultPlan
from support.faulty_store import FaultyObjectStore
from support.s3 import S3Server

texts = st.text(max_size=8)
maybe = st.none() | texts
names = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
entries = st.builds(
    Entry,
    texts,
    embedding_provider=maybe,
    external_blob_policy=st.none()
    | st.builds(
        BlobPolicy,
        bases=st.lists(st.builds(BlobBase, texts, st.just("server_safe")), min_size=1).map(tuple),
    ),
    applies_to=st.none() | st.lists(texts, min_size=1, max_size=2).map(tuple),
    embedding_profile=st.none() | st.builds(EmbeddingProfile, st.just("mock"), maybe, maybe, maybe),
)
ledgers = st.builds(
    Ledger,
    version=st.just(1),
    state_revision=st.integers(0, 9),
    applied_revision=st.builds(
        AppliedResources, maybe, st.dictionaries(names.map("graph.{}".format), entries, max_size=3)
    ),
    resource_statuses=st.dictionaries(
        texts, st.builds(Status, st.just("drifted"), st.lists(texts).map(tuple), maybe), max_size=2
    ),
    approval_records=st.dictionaries(texts, st.builds(ApprovalRecord, texts, texts), max_size=1),
    recovery_records=st.dictionaries(
        texts,
        st.builds(RecoveryRecord, kind=texts, graph_id=texts, recovered_at=texts, actor=maybe),
        max_size=1,
    ),
    observations=st.dictionaries(
        texts,
        st.builds(Tombstone, deleted_at=texts, approval_id=maybe, actor=maybe)
        | st.builds(
            GraphObservation,
            address=texts,
            graph_uri=texts,
            observed_at=texts,
            exists=st.booleans(),
            graph_manifest_version=st.none() | st.integers(0, 9),
            error=maybe,
        ),
        max_size=2,
    ),
)


@pytest.fixture
def root(tmp_path: Path) -> StorageRoot:
    return open_root(str(tmp_path))


@given(ledger=ledgers)
def test_a_ledger_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger
) -> None:
    root = open_root(str(tmp_path_factory.mktemp("root")))
    written = write_ledger(root, ledger, base=None)
    found = read_ledger(root)
    assert found == written
    data = spell_ledger(ledger)
    assert data.endswith(b"}\n")
    assert spell_ledger(found.ledger) == data


@given(ledger=ledgers, member=names)
def test_an_unknown_member_anywhere_makes_a_ledger_invalid(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger, member: str
) -> None:
    root = open_root(str(tmp_path_factory.mktemp("root")))
    shape = json.loads(spell_ledger(ledger))
    targets = [shape, shape["applied_revision"], *shape["applied_revision"]["resources"].values()]
    for target in [*targets, *shape["observations"].values()]:
        target[f"{member}_x"] = 1
        root.objects.put(LEDGER_PATH, json.dumps(shape).encode())
        with pytest.raises(DiagnosedError) as refused:
            read_ledger(root)
        assert refused.value.diagnostic.code == "invalid_state_json"
        del target[f"{member}_x"]
    root.objects.put(LEDGER_PATH, json.dumps(shape).encode())
    assert read_ledger(root).ledger == ledger


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_state_json"),
        (b"[]", "invalid_state_json"),
        (b"\xff", "invalid_state_json"),
        (b'{"version": 1}', "invalid_state_json"),
        (b'{"version": "1", "applied_revision": {}}', "invalid_state_json"),
        (b'{"version": true, "applied_revision": {}}', "invalid_state_json"),
        (b'{"version": 1, "version": 1, "applied_revision": {}}', "invalid_state_json"),
        (b'{"version": 1, "state_revision": -1, "applied_revision": {}}', "invalid_state_json"),
        (b'{"version": 2}', "unsupported_state_version"),
        (b'{"version": 0, "applied_revision": {}}', "unsupported_state_version"),
    ],
)
def test_a_ledger_that_is_none_is_refused(root: StorageRoot, data: bytes, code: str) -> None:
    root.objects.put(LEDGER_PATH, data)
    with pytest.raises(DiagnosedError) as refused:
        read_ledger(root)
    assert refused.value.diagnostic.code == code


def test_of_writers_without_a_lock_exactly_one_wins(tmp_path: Path) -> None:
    root = open_root(str(tmp_path))
    base = write_ledger(root, EMPTY, base=None).identity

    def write(number: int) -> str:
        try:
            write_ledger(root, replace(EMPTY, state_revision=number), base=base)
        except DiagnosedError as problem:
            return problem.diagnostic.code
        return "written"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(write, range(1, 33)))
    assert sorted(set(outcomes)) == ["state_cas_mismatch", "written"]
    assert outcomes.count("written") == 1
    assert read_ledger(root).ledger.state_revision == outcomes.index("written") + 1


def test_a_ledger_that_came_or_went_meanwhile_is_a_mismatch(root: StorageRoot) -> None:
    written = write_ledger(root, EMPTY, base=None)
    for base in (None, "sha256:00"):
        with pytest.raises(DiagnosedError) as refused:
            write_ledger(root, replace(EMPTY, state_revision=1), base=base)
        assert refused.value.diagnostic.code == "state_cas_mismatch"
    root.objects.delete(LEDGER_PATH)
    with pytest.raises(DiagnosedError) as refused:
        write_ledger(root, replace(EMPTY, state_revision=1), base=written.identity)
    assert refused.value.diagnostic.code == "state_cas_mismatch"
    assert not read_ledger(root).is_found


def test_a_write_that_landed_and_was_reported_as_failed_is_a_success(tmp_path: Path) -> None:
    plain = open_root(str(tmp_path))
    plan = FaultPlan(at=1, mode=FaultMode.FAIL_AFTER)
    root = replace(plain, objects=FaultyObjectStore(plain.objects, plan))
    write_ledger(root, EMPTY, base=None)
    assert plan.has_fired
    assert read_ledger(plain).ledger == EMPTY


def test_of_commands_at_once_one_has_the_lock(root: StorageRoot) -> None:
    clock = SystemClock()

    def take(_: int) -> str:
        try:
            return lock.acquire(root, "plan", clock).lock_id
        except DiagnosedError as problem:
            return str(problem.diagnostic)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(take, range(16)))
    held = lock.read_lock(root)
    assert held is not None
    assert held.lock_id in outcomes
    told = f"force-unlock {held.lock_id}"
    assert sum("state_lock_held" in each and told in each for each in outcomes) == 15


def test_a_lock_that_was_taken_away_is_not_released(root: StorageRoot) -> None:
    clock = SystemClock()
    ours = lock.acquire(root, "apply", clock)
    lock.remove(root, ours.lock_id)
    theirs = lock.acquire(root, "plan", clock)
    lock.release(root, ours)
    assert lock.read_lock(root) == theirs
    lock.release(root, theirs)
    assert lock.read_lock(root) is None


def test_intents_come_in_the_order_of_their_names(root: StorageRoot) -> None:
    made = [an_intent("schema_apply", f"g{number}") for number in range(3)]
    for intent in reversed(made):
        write_intent(root, intent)
    found = read_intents(root).records
    assert list(found) == sorted(found)
    assert sorted(found.values(), key=lambda each: each.operation_id) == list(found.values())


def test_a_blob_is_what_its_name_says_or_nothing(root: StorageRoot) -> None:
    address, content = policy_address("p"), b"rules"
    digest = digest_of(content)
    assert read_blob(root, address, digest).state == "missing"
    write_blob(root, address, content)
    assert read_blob(root, address, digest).content == content
    root.objects.put(blob_path(address, digest), b"other")
    tampered = read_blob(root, address, digest)
    assert (tampered.state, tampered.content) == ("mismatch", b"")


APPLY = "import sys; from omnigraph.cli.app import run; sys.exit(run(sys.argv[1:]))"


@pytest.mark.parametrize("has_lock", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_of_three_applies_at_once_one_wins_and_the_others_are_told(
    tmp_path: Path, has_lock: bool
) -> None:
    folder = Folder(tmp_path / "here")
    folder.write({f"g{number}": (SCHEMA, {}) for number in range(2)})
    if not has_lock:
        config = json.loads((folder.path / "cluster.yaml").read_text())
        (folder.path / "cluster.yaml").write_text(json.dumps(config | {"state": {"lock": False}}))
    succeeded(folder.import_state())
    check_race(folder, dict(os.environ), has_lock=has_lock)


@pytest.mark.slow
def test_of_three_applies_at_once_on_s3_one_wins(tmp_path: Path, bucket: S3Server) -> None:
    folder = Folder(tmp_path / "here", f"s3://{bucket.bucket}/race")
    folder.write({"g0": (SCHEMA, {})})
    succeeded(folder.import_state())
    check_race(folder, dict(os.environ), has_lock=True)


def check_race(folder: Folder, environment: dict[str, str], *, has_lock: bool) -> None:
    command = [sys.executable, "-c", APPLY, "cluster", "apply", "--config", str(folder.path)]
    running = [
        subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    told = [json.loads(process.communicate(timeout=300)[0]) for process in running]
    refusals = {"state_lock_held"} if has_lock else {"state_cas_mismatch", "graph_create_failed"}
    for each in told:
        if not each["ok"]:
            found = [d["code"] for d in each["diagnostics"] if d["severity"] == "error"]
            assert set(found) <= refusals, found
    # Without a lock they may all be in each other's way; what they write is not lost even then.
    assert any(each["ok"] for each in told) or not has_lock
    assert sum(each["state_written"] for each in told) == folder.ledger().state_revision - 1
    succeeded(folder.apply())
    assert succeeded(folder.plan()).members["changes"] == []
