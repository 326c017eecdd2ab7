"""Old versions in packs: what readers, refs and cleanups see of them."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.errors import CorruptObjectError, DatasetVersionNotFoundError, StorageError
from omnigraph.store.filters import Comparison
from omnigraph.store.lance import packing
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.lance.packs import Packs
from omnigraph.store.records import (
    ROW_CREATED,
    ROW_UPDATED,
    CleanupRequest,
    DatasetVersion,
    IndexKind,
    IndexSpec,
    ScanRequest,
    TransactionInfo,
    VersionInfo,
)
from support.faulty_store import (
    FaultMode,
    FaultPlan,
    FaultyObjectStore,
    SimulatedDeath,
    sweep,
)
from support.people import LOCATION, append, create, people, stage_upsert

VERSIONS = 26
TRIES = 20


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LOOSE_MIN", 4)
    monkeypatch.setattr(packing, "PACKED_MIN", 4)
    monkeypatch.setattr(packing, "PACKED_MAX", 16)


def content(store: Store, version: int, *, branch: str | None = None) -> dict[str, Any]:
    """Return all that can be asked of a version."""
    handle = store.datasets.open(LOCATION, branch=branch, version=version)
    request = ScanRequest(columns=("id", "age", ROW_CREATED, ROW_UPDATED), with_row_id=True)
    [made] = store.datasets.transactions(LOCATION, branch=branch, first=version, last=version)
    by_id = ScanRequest(columns=("age",), row_filter=Comparison("id", "=", "p3"))
    return {
        "rows": handle.scan(request).read_all().sort_by("id").to_pylist(),
        "found": handle.scan(by_id).read_all().to_pylist(),
        "indexes": [index.name for index in handle.indexes()],
        "count": handle.count(),
        "transaction": made,
    }


def contents(store: Store) -> dict[int, dict[str, Any]]:
    return {
        info.version: content(store, info.version) for info in store.datasets.versions(LOCATION)
    }


def compacted(store: Store, at: DatasetVersion) -> DatasetVersion:
    datasets = store.datasets
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(at)]
    return datasets.commit_staged(datasets.stage_compaction(at, results)).at


def indexed(store: Store, at: DatasetVersion) -> DatasetVersion:
    spec = IndexSpec("id", IndexKind.BTREE)
    return store.datasets.commit_staged(store.datasets.stage_create_index(at, [spec])).at


def grown(store: Store) -> DatasetVersion:
    """A dataset to which rows were added one by one, with an index and two compactions."""
    at = create(store)
    for number in range(VERSIONS):
        at = append(store, at, people([f"p{number}"], number)).at
        if number == 6:
            at = indexed(store, at)
        if number in {9, 18}:
            at = compacted(store, at)
    return at


def rewritten(store: Store, branch: str | None = None, base: DatasetVersion | None = None) -> None:
    """A dataset of which each version replaces a row and adds one, as `__manifest` does."""
    at = base or create(store, people(["head"], 0))
    for number in range(VERSIONS):
        rows = pa.concat_tables([people(["head"], number + 1), people([f"p{number}"], number)])
        at = store.datasets.commit_staged(stage_upsert(store.datasets, at, rows)).at
        if number in {9, 18}:
            at = compacted(store, at)


def pack_all(store: Store, *, with_files: bool = False, branch: str | None = None) -> int:
    rounds = 0
    while store.datasets.pack_versions(LOCATION, branch=branch, with_files=with_files):
        rounds += 1
    return rounds


def loose(store: Store, branch: str | None = None) -> set[int]:
    return {
        info.version
        for info in store.datasets.versions(LOCATION, branch=branch)
        if store.objects.head(manifest_path(LOCATION, branch, info.version))
    }


def infos(store: Store) -> tuple[VersionInfo, ...]:
    return store.datasets.versions(LOCATION)


def files(store: Store) -> list[str]:
    return [info.path for info in store.objects.list(LOCATION)]


def reopened(store: Store) -> Store:
    return connect(store.settings.root.uri, durability="process")


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return connect(str(tmp_path / "graph"), durability="process")


KINDS = pytest.mark.parametrize("with_files", [False, True])


@KINDS
def test_packed_versions_are_read_as_before(local_store: Store, with_files: bool) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before, infos = contents(local_store), local_store.datasets.versions(LOCATION)
    many = len(files(local_store))
    assert pack_all(local_store, with_files=with_files) > 1
    assert len(loose(local_store)) < len(infos) / 2
    assert len(files(local_store)) < many
    for store in (local_store, reopened(local_store)):
        described = store.datasets.versions(LOCATION)
        # Lance gives a time as a number with a fraction, which is a microsecond off now and then.
        pairs = list(zip(described, infos, strict=True))
        assert all(abs(now.created_us - then.created_us) <= 1 for now, then in pairs)
        assert [replace(now, created_us=0) for now, _ in pairs] == [
            replace(then, created_us=0) for _, then in pairs
        ]
        assert contents(store) == before


def test_only_versions_that_the_next_one_covers_are_packed(local_store: Store) -> None:
    rewritten(local_store)
    data = {path for path in files(local_store) if "/data/" in path}
    pack_all(local_store)
    assert {path for path in files(local_store) if "/data/" in path} == data
    # Every version replaces a row, so none but those before compactions of nothing can go.
    assert len(loose(local_store)) > VERSIONS


@KINDS
def test_a_handle_that_was_open_before_reads_on(local_store: Store, with_files: bool) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    expected = content(local_store, 11)
    store = reopened(local_store)
    handles = [store.datasets.open(LOCATION, version=11) for _ in range(2)]
    pack_all(local_store, with_files=with_files)
    assert 11 not in loose(local_store)
    assert [index.name for index in handles[0].indexes()] == expected["indexes"]
    by_id = ScanRequest(columns=("age",), row_filter=Comparison("id", "=", "p3"))
    assert handles[0].scan(by_id).read_all().to_pylist() == expected["found"]
    assert handles[1].count() == expected["count"]
    assert content(store, 11) == expected


def test_a_handle_whose_version_was_packed_searches_its_index_first(local_store: Store) -> None:
    grown(local_store)
    expected = content(local_store, 11)["found"]
    handle = reopened(local_store).datasets.open(LOCATION, version=11)
    pack_all(local_store)
    by_id = ScanRequest(columns=("age",), row_filter=Comparison("id", "=", "p3"))
    assert handle.scan(by_id).read_all().to_pylist() == expected


@KINDS
def test_reading_packed_versions_writes_nothing(local_store: Store, with_files: bool) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    pack_all(local_store, with_files=with_files)
    root = Path(local_store.settings.root.prefix)
    folders = [Path(folder) for folder, _, _ in os.walk(root)]
    names = sorted(os.walk(root))
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert contents(reopened(local_store)) == before
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)
    assert sorted(os.walk(root)) == names


@KINDS
@pytest.mark.parametrize("kept", [{3}, {3, 9, 17}, set(range(7, 19))])
def test_cleanup_removes_what_it_is_told_and_nothing_else(
    local_store: Store, with_files: bool, kept: set[int]
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    pack_all(local_store, with_files=with_files)
    newest = max(before)
    going = tuple(sorted(before.keys() - kept - {newest}))
    request = CleanupRequest(versions=going)
    assert local_store.datasets.cleanup(LOCATION, request).versions_removed == len(going)
    removed = local_store.datasets.cleanup(LOCATION, request, preview=False)
    assert removed.versions_removed == len(going)
    assert contents(local_store) == {version: before[version] for version in {*kept, newest}}
    for version in going:
        with pytest.raises(DatasetVersionNotFoundError):
            reopened(local_store).datasets.open(LOCATION, version=version)
    left = [info.path for info in local_store.datasets.unreferenced_files(LOCATION)]
    # Copies of transactions that Lance made for compactions.
    assert all(path.endswith(".txn") for path in left)


@KINDS
def test_removing_only_what_covers_others_leaves_them_readable(
    local_store: Store, with_files: bool
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    pack_all(local_store, with_files=with_files)
    going = sorted(loose(local_store))[:-1]
    local_store.datasets.cleanup(LOCATION, CleanupRequest(versions=tuple(going)), preview=False)
    rest = {version: content for version, content in before.items() if version not in going}
    assert contents(local_store) == rest
    pack_all(local_store, with_files=with_files)
    assert contents(reopened(local_store)) == rest


@KINDS
def test_branches_tags_and_restores_start_from_packed_versions(
    local_store: Store, with_files: bool
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    pack_all(local_store, with_files=with_files)
    datasets = local_store.datasets
    assert not {4, 5, 6} & loose(local_store)
    datasets.create_branch(LOCATION, "other", from_version=4)
    datasets.create_tag(LOCATION, "pin", version=5)
    uuid = "00000000-0000-4000-8000-000000000000"
    restored = datasets.restore(LOCATION, version=6, uuid=uuid)
    assert content(local_store, 4, branch="other")["rows"] == before[4]["rows"]
    assert content(local_store, restored.version)["rows"] == before[6]["rows"]
    assert {4, 5, 6} <= loose(local_store)
    pack_all(local_store, with_files=with_files)
    assert {4, 5} <= loose(local_store)
    keep_newest = CleanupRequest(keep_versions=1)
    datasets.cleanup(LOCATION, keep_newest, preview=False)
    assert content(local_store, 5) == before[5]
    assert content(local_store, 4, branch="other")["rows"] == before[4]["rows"]


def test_a_branch_has_packs_of_its_own(local_store: Store) -> None:
    base = create(local_store, people(["head"], 0))
    datasets = local_store.datasets
    branch = datasets.create_branch(LOCATION, "other", from_version=base.version)
    rewritten(local_store, base=branch)
    versions = [info.version for info in datasets.versions(LOCATION, branch="other")]
    before = {version: content(local_store, version, branch="other") for version in versions}
    assert pack_all(local_store, with_files=True, branch="other")
    assert len(loose(local_store, "other")) < len(versions) / 2
    store = reopened(local_store)
    assert {v: content(store, v, branch="other") for v in versions} == before


@KINDS
def test_a_pack_whose_versions_were_not_removed_changes_nothing(
    local_store: Store, with_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before, names = contents(local_store), set(files(local_store))

    class FullDiskError(Exception):
        pass

    def stop(_path: str) -> None:
        raise FullDiskError

    packing_of = local_store.datasets._packing  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setattr(packing_of._objects, "delete", stop)
        with pytest.raises(FullDiskError):
            local_store.datasets.pack_versions(LOCATION, with_files=with_files)
    assert names < set(files(local_store))
    assert contents(reopened(local_store)) == before
    pack_all(local_store, with_files=with_files)
    going = tuple(range(2, 18))
    local_store.datasets.cleanup(LOCATION, CleanupRequest(versions=going), preview=False)
    rest = {version: content for version, content in before.items() if version not in going}
    assert contents(reopened(local_store)) == rest


def test_a_damaged_pack_is_an_error(local_store: Store) -> None:
    grown(local_store)
    pack_all(local_store)
    packs = [path for path in files(local_store) if path.endswith(".pack")]
    root = Path(local_store.settings.root.prefix)
    for position in (3, 40, -5):
        for path in packs:
            whole = (root / path).read_bytes()
            damaged = bytearray(whole)
            damaged[position] ^= 255
            (root / path).write_bytes(damaged)
        with pytest.raises(CorruptObjectError):
            contents(reopened(local_store))
        for path in packs:
            data = bytearray((root / path).read_bytes())
            data[position] ^= 255
            (root / path).write_bytes(data)
    contents(reopened(local_store))


def test_a_version_is_looked_at_once(local_store: Store) -> None:
    rewritten(local_store)
    store = reopened(local_store)
    while store.datasets.pack_versions(LOCATION):
        pass
    assert store.datasets._packing._due(LOCATION, None) is None  # type: ignore[attr-defined]


def test_a_pack_of_large_versions_holds_fewer(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(local_store)
    before = contents(local_store)
    monkeypatch.setattr(packing, "PACKED_BYTES_MAX", 4_000)
    assert pack_all(local_store) > 2
    assert contents(reopened(local_store)) == before


def test_what_was_opened_out_of_a_pack_leaves_nothing_behind(
    local_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(local_store)
    pack_all(local_store)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    store = reopened(local_store)
    handle = store.datasets.open(LOCATION, version=5)
    assert handle.count() == 4
    assert len(list(folder.iterdir())) == 1
    del handle, store
    gc.collect()
    assert list(folder.iterdir()) == []
    folder.rmdir()
    with pytest.raises(StorageError, match="temporary"):
        reopened(local_store).datasets.open(LOCATION, version=5)


def test_object_stores_have_no_packs(s3_store: Store) -> None:
    at = create(s3_store)
    for number in range(12):
        at = append(s3_store, at, people([f"p{number}"], number)).at
    assert s3_store.datasets.pack_versions(LOCATION) == 0


# -- faults ----------------------------------------------------------------------------------------


def under(store: Store, plan: FaultPlan) -> None:
    """Let the files of packs fail or die by a plan."""
    work = store.datasets._packing  # type: ignore[attr-defined]
    work._objects = FaultyObjectStore(work._objects, plan)


def copied(store: Store, target: Path) -> Store:
    shutil.copytree(store.settings.root.prefix, target)
    return connect(str(target), durability="process")


FAULTS = pytest.mark.parametrize("mode", [FaultMode.DIE_BEFORE, FaultMode.FAIL_AFTER])


@KINDS
@FAULTS
def test_packing_that_breaks_off_anywhere_loses_nothing(
    local_store: Store, tmp_path: Path, with_files: bool, mode: FaultMode
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    for number, plan in enumerate(sweep(mode)):
        store = copied(local_store, tmp_path / f"copy{number}")
        under(store, plan)
        with suppress(SimulatedDeath, StorageError):
            pack_all(store, with_files=with_files)
        after = reopened(store)
        # Every effect is broken; all versions are read after some of them, because that takes long.
        asked = before if number % 7 == 0 else {v: before[v] for v in (1, 5, 11, max(before))}
        assert {version: content(after, version) for version in asked} == asked
        shutil.rmtree(tmp_path / f"copy{number}")


@KINDS
@FAULTS
def test_a_cleanup_that_breaks_off_anywhere_keeps_what_stays(
    local_store: Store, tmp_path: Path, with_files: bool, mode: FaultMode
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    pack_all(local_store, with_files=with_files)
    stay = {5, 11, max(before)}
    request = CleanupRequest(versions=tuple(sorted(before.keys() - stay)))
    for number, plan in enumerate(sweep(mode)):
        store = copied(local_store, tmp_path / f"copy{number}")
        under(store, plan)
        with suppress(SimulatedDeath, StorageError):
            store.datasets.cleanup(LOCATION, request, preview=False)
        after = reopened(store)
        expected = {version: before[version] for version in stay}
        assert {version: content(after, version) for version in stay} == expected
        after.datasets.cleanup(LOCATION, request, preview=False)
        assert contents(reopened(store)) == expected
        shutil.rmtree(tmp_path / f"copy{number}")


class After:
    """Calls the real method, and after its first call does something else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self._rest: list[Callable[[], object]] = []
        real = getattr(owner, name)

        def called(*args: Any, **options: Any) -> Any:
            found = real(*args, **options)
            if self._rest:
                self._rest.pop()()
            return found

        monkeypatch.setattr(owner, name, called)

    def do(self, step: Callable[[], object]) -> None:
        self._rest.append(step)

    def do_nothing(self) -> None:
        self._rest.clear()


def transaction(store: Store, version: int) -> TransactionInfo:
    [made] = store.datasets.transactions(LOCATION, first=version, last=version)
    return made


def unpack_all(store: Store) -> None:
    packing_of = store.datasets._packing  # type: ignore[attr-defined]
    packing_of.release(LOCATION, None, None)
    packing_of._unpackable.clear()


def test_the_transaction_of_a_version_that_is_packed_at_this_moment(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(local_store)
    expected = {info.version: transaction(local_store, info.version) for info in infos(local_store)}
    opened = After(monkeypatch, LanceHandle, "private_dataset")
    for version in sorted(expected):
        store = reopened(local_store)
        opened.do(lambda: pack_all(local_store))
        assert transaction(store, version) == expected[version], version
        unpack_all(local_store)


def test_the_transaction_of_a_version_that_is_packed_and_unpacked_at_this_moment(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(local_store)
    expected = {info.version: transaction(local_store, info.version) for info in infos(local_store)}
    opened = After(monkeypatch, LanceHandle, "private_dataset")
    found = After(monkeypatch, Packs, "find")
    for version in sorted(expected):
        store = reopened(local_store)
        opened.do(lambda: (pack_all(local_store), found.do(lambda: unpack_all(local_store))))
        assert transaction(store, version) == expected[version], version
        found.do_nothing()
        unpack_all(local_store)


def patiently(store: Store, version: int, *, with_files: bool) -> dict[str, Any]:
    """Read as the manifest is read: files of rows may go into a pack in the middle.

    Here each version is moved again and again, so it may happen many times in a row.
    """
    for _ in range(TRIES if with_files else 0):
        with suppress(CorruptObjectError):
            return content(store, version)
    return content(store, version)


@KINDS
def test_readers_of_old_versions_see_the_same_while_packs_come_and_go(
    local_store: Store, with_files: bool
) -> None:
    rewritten(local_store) if with_files else grown(local_store)
    before = contents(local_store)
    failures: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        store = reopened(local_store)
        while not is_over.is_set():
            for version, expected in before.items():
                # A handle that is cached would not notice anything.
                store.datasets.forget(LOCATION)
                if patiently(store, version, with_files=with_files) != expected:
                    failures.append(f"version {version} differs")
                if is_over.is_set():
                    return

    def checked() -> None:
        try:
            read()
        except Exception as error:  # noqa: BLE001 - any failure of a reader is a failure
            failures.append(repr(error))

    readers = [threading.Thread(target=checked) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(6):
            pack_all(local_store, with_files=with_files)
            unpack_all(local_store)
    finally:
        is_over.set()
        for reader in readers:
            reader.join()
    assert failures == []
