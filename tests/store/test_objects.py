"""One behaviour suite for objects: in memory, on a local disk and on S3."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.store.durability import DiskFlusher
from omnigraph.store.errors import (
    CopyRefusedError,
    CorruptObjectError,
    InvalidLocationError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageFullError,
    StoragePermissionError,
    StorageTimeoutError,
    StorageUnavailableError,
    WriteOutcomeUnknownError,
)
from omnigraph.store.objects.cloud import CloudObjectStore
from omnigraph.store.objects.local import LocalObjectStore
from omnigraph.store.objects.protocol import ObjectStore, exists
from omnigraph.store.uri import parse_root
from support.counting_objects import CountingObjectStore
from support.memory_objects import MemoryObjectStore
from support.s3 import S3Server


@pytest.fixture(params=["memory", "local", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryObjectStore()
    if request.param == "local":
        return LocalObjectStore(parse_root(tmp_path))
    server: S3Server = request.getfixturevalue("s3")
    return CloudObjectStore(parse_root(request.getfixturevalue("s3_root")), server.options)


def test_what_is_put_is_read_back_with_its_tag(objects: ObjectStore) -> None:
    tag = objects.put("a/b.json", b"one")
    assert objects.get("a/b.json").data == b"one"
    assert objects.get("a/b.json").tag == tag
    newer = objects.put("a/b.json", b"two")
    assert newer != tag
    assert objects.get("a/b.json").data == b"two"


def test_a_copy_stays_when_the_first_name_goes(objects: ObjectStore) -> None:
    objects.put("a/x", b"one")
    objects.put("b/c/y", b"what a dead process has left")
    objects.copy("a/x", "b/c/y")
    objects.copy("a/x", "b/c/y")
    objects.delete("a/x")
    assert objects.get("b/c/y").data == b"one"
    assert [info.path for info in objects.list()] == ["b/c/y"]


def test_nothing_can_be_copied_from_nowhere(objects: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        objects.copy("a/x", "b/y")
    assert objects.list() == ()


def test_a_local_copy_is_young_and_shares_the_bytes(tmp_path: Path) -> None:
    """An unfinished write is spared by the age of its files."""
    objects = LocalObjectStore(parse_root(tmp_path))
    objects.put("x", b"one")
    os.utime(tmp_path / "x", (1, 1))
    objects.copy("x", "y")
    assert (tmp_path / "y").samefile(tmp_path / "x")
    assert (tmp_path / "y").stat().st_mtime > 1
    objects.put("z", b"two")
    objects.copy("x", "z")
    assert (tmp_path / "z").samefile(tmp_path / "x")
    assert objects.leftovers() == ()


def test_a_disk_that_has_no_links_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_target: Path, _source: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    objects = LocalObjectStore(parse_root(tmp_path))
    objects.put("x", b"one")
    monkeypatch.setattr(Path, "hardlink_to", refused)
    with pytest.raises(CopyRefusedError, match="no second name"):
        objects.copy("x", "y")


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_object_can_come_in_pieces(objects: ObjectStore, count: int) -> None:
    pieces = [bytes([number]) * 3_000_000 for number in range(count)]
    tag = objects.put_pieces("a/x", iter(pieces))
    found = objects.get("a/x")
    assert (found.data, found.tag) == (b"".join(pieces), tag)


def test_pieces_may_come_from_the_store_itself(objects: ObjectStore) -> None:
    objects.put("a/part", b"x" * 6_000_000)
    parts = (objects.get("a/part").data for _ in range(3))
    objects.put_pieces("a/whole", parts)
    assert objects.get("a/whole").data == b"x" * 18_000_000


def test_pieces_that_end_early_leave_no_object(objects: ObjectStore) -> None:
    def broken() -> Iterator[bytes | memoryview]:
        yield b"x" * 6_000_000
        raise KeyError("no more")

    with pytest.raises(KeyError):
        objects.put_pieces("a/x", broken())
    assert objects.list() == ()
    assert objects.leftovers() == ()


@pytest.mark.parametrize("data", [b"", b"x" * 3_000_000])
def test_empty_and_large_objects_are_objects(objects: ObjectStore, data: bytes) -> None:
    objects.put("x", data)
    assert objects.get("x").data == data
    info = objects.head("x")
    assert info is not None
    assert info.size == len(data)


def test_a_missing_object_is_a_typed_error_with_its_path(objects: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"no/such\.json"):
        objects.get("no/such.json")
    assert objects.head("no/such.json") is None
    assert not exists(objects, "no/such.json")


def test_a_directory_is_no_object(objects: ObjectStore) -> None:
    objects.put("a/b/c", b"1")
    assert objects.head("a/b") is None
    with pytest.raises(ObjectNotFoundError):
        objects.get("a/b")


def test_put_if_absent_creates_once(objects: ObjectStore) -> None:
    objects.put_if_absent("lease", b"first")
    with pytest.raises(ObjectExistsError, match="lease"):
        objects.put_if_absent("lease", b"second")
    assert objects.get("lease").data == b"first"
    objects.delete("lease")
    objects.put_if_absent("lease", b"third")


def test_put_if_absent_succeeds_for_exactly_one_of_many(objects: ObjectStore) -> None:
    winners = race(8, lambda number: objects.put_if_absent("lock", str(number).encode()))
    assert len(winners) == 1
    assert objects.get("lock").data == str(winners[0]).encode()


def test_put_if_match_replaces_only_what_was_read(objects: ObjectStore) -> None:
    first = objects.put_if_absent("lease", b"1")
    second = objects.put_if_match("lease", b"2", tag=first)
    with pytest.raises(ObjectChangedError, match="lease") as caught:
        objects.put_if_match("lease", b"late", tag=first)
    assert caught.value.expected == first
    assert objects.get("lease").data == b"2"
    objects.delete("lease")
    with pytest.raises(ObjectChangedError):
        objects.put_if_match("lease", b"after", tag=second)
    assert not exists(objects, "lease")


def test_put_if_match_succeeds_for_exactly_one_of_many(objects: ObjectStore) -> None:
    tag = objects.put_if_absent("lease", b"start")
    winners = race(8, lambda number: objects.put_if_match("lease", b"%d" % number, tag=tag))
    assert len(winners) == 1
    assert objects.get("lease").data == b"%d" % winners[0]


def race(count: int, attempt: Callable[[int], object]) -> list[int]:
    start = threading.Barrier(count)
    winners: list[int] = []

    def run(number: int) -> None:
        start.wait()
        try:
            attempt(number)
        except (ObjectExistsError, ObjectChangedError):
            return
        winners.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


def test_a_listing_is_sorted_and_keeps_to_its_directory(objects: ObjectStore) -> None:
    for path in ("a/2", "a/1", "a/deep/er/3", "ab/4", "b"):
        objects.put(path, path.encode())
    assert [info.path for info in objects.list("a")] == ["a/1", "a/2", "a/deep/er/3"]
    assert [info.path for info in objects.list()] == ["a/1", "a/2", "a/deep/er/3", "ab/4", "b"]
    assert objects.list("nothing/here") == ()
    (info,) = objects.list("ab")
    assert (info.size, info.tag) == (4, objects.get("ab/4").tag)


def test_a_listing_knows_when_objects_were_written(objects: ObjectStore) -> None:
    objects.put("a", b"1")
    (info,) = objects.list()
    assert info == objects.head("a")
    assert abs(info.modified_us - time.time() * 1_000_000) < 60_000_000


def test_deleting_is_idempotent(objects: ObjectStore) -> None:
    objects.put("a", b"1")
    objects.delete("a")
    objects.delete("a")
    assert objects.list() == ()


def test_a_prefix_goes_as_a_whole_and_nothing_else(objects: ObjectStore) -> None:
    for path in ("a/1", "a/2/3", "ab", "b/1"):
        objects.put(path, b"x")
    assert objects.delete_prefix("a") == 2
    assert [info.path for info in objects.list()] == ["ab", "b/1"]
    assert objects.delete_prefix("a") == 0


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/./b", "a/../b", "a\0b"])
def test_paths_that_leave_the_root_are_refused(objects: ObjectStore, path: str) -> None:
    with pytest.raises(InvalidLocationError):
        objects.put(path, b"x")


def test_counted_objects_count_calls_and_bytes() -> None:
    counted = CountingObjectStore(MemoryObjectStore())
    tag = counted.put("a", b"12")
    counted.put_if_match("a", b"345", tag=tag)
    counted.put_if_absent("b", b"6")
    counted.get("a")
    counted.head("a")
    counted.list()
    counted.delete("a")
    counted.delete_prefix("b")
    names = ["put", "put_if_match", "put_if_absent", "get", "head", "list", "delete"]
    assert counted.calls == dict.fromkeys([*names, "delete_prefix"], 1)
    assert (counted.call_count, counted.bytes_written, counted.bytes_read) == (8, 6, 3)
    counted.reset()
    assert (counted.call_count, counted.bytes_written, counted.bytes_read) == (0, 0, 0)


# Local disk


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    objects = LocalObjectStore(parse_root(tmp_path))
    objects.put_if_absent("a", b"1")
    with pytest.raises(ObjectExistsError):
        objects.put_if_absent("a", b"2")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_lock_files_are_no_objects_and_go_with_their_directory(tmp_path: Path) -> None:
    objects = LocalObjectStore(parse_root(tmp_path))
    tag = objects.put_if_absent("dir/a", b"1")
    objects.put_if_match("dir/a", b"2", tag=tag)
    assert [info.path for info in objects.list()] == ["dir/a"]
    assert objects.delete_prefix("dir") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_durable_put_flushes_file_before_name_and_directory_after(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    flusher = DiskFlusher(root)
    flushed: list[Path] = []
    flusher.sync = lambda path: flushed.append(Path(path))
    objects = LocalObjectStore(parse_root(root), flusher)
    objects.put("__recovery/1.json", b"{}")
    assert flushed[0].name.startswith(".og-put-"), "the bytes come first"
    assert flushed[1:3] == [root / "__recovery", root], "then the names"
    before = len(flushed)
    objects.put("__recovery/2.json", b"{}")
    assert len(flushed) - before == 2, "the bytes before the rename, the name after it"


def test_a_put_without_durability_flushes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise AssertionError("fsync was called")

    monkeypatch.setattr(os, "fsync", refuse)
    LocalObjectStore(parse_root(tmp_path)).put("a", b"1")


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (PermissionError(13, "Permission denied"), StoragePermissionError),
        (OSError(30, "Read-only file system"), StoragePermissionError),
        (OSError(5, "Input/output error"), CorruptObjectError),
        (OSError(28, "No space left on device"), StorageFullError),
        (TimeoutError(110, "Connection timed out"), StorageTimeoutError),
    ],
)
def test_failures_of_the_disk_keep_their_kind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: OSError,
    expected: type[Exception],
) -> None:
    objects = LocalObjectStore(parse_root(tmp_path))
    objects.put("a", b"1")

    def fail(*_args: object, **_options: object) -> None:
        raise failure

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(expected, match="`a`"):
        objects.get("a")
    monkeypatch.setattr("tempfile.mkstemp", fail)
    with pytest.raises(expected, match="`a`"):
        objects.put("a", b"2")


def test_a_failure_after_the_rename_has_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flusher = DiskFlusher(tmp_path)
    objects = LocalObjectStore(parse_root(tmp_path), flusher)
    objects.put("a", b"1")

    def fail(_paths: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(flusher, "directories", fail)
    with pytest.raises(WriteOutcomeUnknownError, match="`a`"):
        objects.put("a", b"2")
    assert objects.get("a").data == b"2", "it has landed, and the error does not deny it"


def test_a_file_where_a_directory_is_needed_is_a_typed_error(tmp_path: Path) -> None:
    objects = LocalObjectStore(parse_root(tmp_path))
    objects.put("a", b"1")
    with pytest.raises(StorageUnavailableError, match="a/b"):
        objects.put("a/b", b"2")
    with pytest.raises(ObjectNotFoundError):
        objects.get("a/b")


# S3


def test_refused_credentials_are_a_permission_error(s3: S3Server, s3_root: str) -> None:
    objects = CloudObjectStore(parse_root(s3_root), s3.options)
    with s3.refusing("secret"):
        with pytest.raises(StoragePermissionError, match="secret"):
            objects.get("secret")
        with pytest.raises(StoragePermissionError, match="secret"):
            objects.put("secret", b"x")


def test_a_broken_write_has_an_unknown_outcome_and_a_broken_read_has_none(
    s3: S3Server, s3_root: str
) -> None:
    objects = CloudObjectStore(parse_root(s3_root), s3.options | {"client_max_retries": "0"})
    with s3.refusing("flaky", "500 Internal Server Error"):
        with pytest.raises(WriteOutcomeUnknownError, match="flaky"):
            objects.put("flaky", b"x")
        with pytest.raises(StorageUnavailableError, match="flaky"):
            objects.get("flaky")


def test_a_slow_read_is_a_timeout_and_a_slow_write_has_an_unknown_outcome(
    s3: S3Server, s3_root: str
) -> None:
    options = s3.options | {"client_max_retries": "0", "timeout": "200ms"}
    objects = CloudObjectStore(parse_root(s3_root), options)
    CloudObjectStore(parse_root(s3_root), s3.options).put("slow", b"x")
    with s3.holding("slow"):
        with pytest.raises(StorageTimeoutError, match="slow"):
            objects.get("slow")
        with pytest.raises(WriteOutcomeUnknownError, match="slow"):
            objects.put("slow", b"y")


def test_a_conditional_put_is_sent_once(s3: S3Server, s3_root: str) -> None:
    objects = CloudObjectStore(parse_root(s3_root), s3.options)
    with (
        s3.requests() as seen,
        s3.refusing("once", "500 Internal Server Error"),
        pytest.raises(WriteOutcomeUnknownError),
    ):
        objects.put_if_absent("once", b"x")
    assert [request.method for request in seen] == ["PUT"]


def test_a_missing_bucket_says_so(s3: S3Server) -> None:
    objects = CloudObjectStore(parse_root("s3://no-such-bucket/x"), s3.options)
    with pytest.raises(StorageUnavailableError, match="bucket `no-such-bucket` does not exist"):
        objects.get("a")


def test_a_storage_that_is_not_there_is_unavailable() -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "client_max_retries": "0",
    }
    objects = CloudObjectStore(parse_root("s3://bucket/x"), options)
    with pytest.raises(StorageUnavailableError, match="s3://bucket/x/a"):
        objects.get("a")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "absent", "match", "delete"]),
            st.sampled_from(["a", "b", "d/a"]),
            st.binary(max_size=4),
        ),
        max_size=20,
    )
)
def test_disk_and_memory_agree(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, bytes]]
) -> None:
    disk = LocalObjectStore(parse_root(tmp_path_factory.mktemp("objects")))
    memory = MemoryObjectStore()
    outcomes = []
    for objects in (disk, memory):
        tags: dict[str, str] = {}
        outcomes.append([apply(objects, tags, *step) for step in steps])
    assert outcomes[0] == outcomes[1]
    contents = [
        {info.path: objects.get(info.path).data for info in objects.list()}
        for objects in (disk, memory)
    ]
    assert contents[0] == contents[1]


def apply(objects: ObjectStore, tags: dict[str, str], act: str, path: str, data: bytes) -> str:
    try:
        if act == "put":
            objects.put(path, data)
        elif act == "absent":
            tags[path] = objects.put_if_absent(path, data)
        elif act == "match":
            tags[path] = objects.put_if_match(path, data, tag=tags.get(path, "none"))
        else:
            objects.delete(path)
    except (ObjectExistsError, ObjectChangedError) as error:
        return type(error).__name__
    return "done"


def test_a_write_that_is_done_leaves_nothing_behind(objects: ObjectStore) -> None:
    objects.put("a/x", b"1")
    objects.put_if_absent("a/y", b"1")
    assert objects.leftovers() == ()


def test_temporary_files_are_leftovers_and_can_be_deleted(tmp_path: Path) -> None:
    objects = LocalObjectStore(parse_root(tmp_path))
    objects.put("a/b/x", b"1")
    for name in (".og-put-1", "a/b/.og-put-2", "a/b/.og-lock-x", "a/other"):
        (tmp_path / name).write_bytes(b"half")
    assert [(info.path, info.size) for info in objects.leftovers()] == [
        (".og-put-1", 4),
        ("a/b/.og-put-2", 4),
    ]
    assert [info.path for info in objects.list()] == ["a/b/x", "a/other"]
    for info in objects.leftovers():
        objects.delete(info.path)
    assert objects.leftovers() == ()
