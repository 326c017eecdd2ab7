"""One behaviour suite for datasets, on local disk and on S3."""

from __future__ import annotations

import itertools
from dataclasses import replace

import lance
import pyarrow as pa
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.errors import (
    CorruptObjectError,
    DatasetExistsError,
    DatasetNotFoundError,
    DatasetVersionNotFoundError,
    InvalidScanError,
    MisplacedCommitError,
    RefExistsError,
    RefInUseError,
    RefNotFoundError,
    StagedFilesLostError,
    StaleBaseError,
    StoragePermissionError,
    WriteOutcomeUnknownError,
)
from omnigraph.store.filters import Comparison, OneOf
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.records import (
    ROW_ADDRESS,
    CleanupRequest,
    CompactionOptions,
    DatasetVersion,
    IndexKind,
    IndexSpec,
    OperationKind,
    RowCounts,
    ScanRequest,
    StagedTransaction,
    TagInfo,
)
from support.people import (
    LOCATION,
    PEOPLE,
    ages,
    append,
    create,
    numbered,
    people,
    row_ids,
    stage_upsert,
)
from support.s3 import S3Server


def commit(store: Store, staged: StagedTransaction) -> None:
    store.datasets.commit_staged(staged, exact=False)


def test_a_created_dataset_is_empty_and_keeps_every_rule(store: Store) -> None:
    staged = store.datasets.stage_create(LOCATION, PEOPLE)
    assert not store.datasets.exists(LOCATION)
    committed = store.datasets.commit_staged(staged)
    assert (committed.before, committed.version, committed.uuid) == (0, 1, staged.uuid)
    handle = store.datasets.open(LOCATION)
    assert handle.count() == 0
    assert handle.schema.equals(PEOPLE, check_metadata=True)


def test_a_dataset_can_be_created_with_its_first_rows(store: Store) -> None:
    staged = store.datasets.stage_create(LOCATION, PEOPLE, rows=numbered(3))
    assert staged.counts == RowCounts(inserted=3)
    at = store.datasets.commit_staged(staged).at
    assert ages(store, at) == {"p0": 0, "p1": 1, "p2": 2}


def test_creating_twice_is_refused_and_changes_nothing(store: Store) -> None:
    late = store.datasets.stage_create(LOCATION, PEOPLE, rows=numbered(3))
    at = create(store)
    with pytest.raises(DatasetExistsError, match=LOCATION):
        store.datasets.commit_staged(late)
    assert store.datasets.head_version(LOCATION) == at.version
    assert ages(store, at) == {}


def test_staging_moves_no_head(store: Store) -> None:
    base = create(store, numbered(5))
    store.datasets.stage_append(base, people(["x"]))
    stage_upsert(store.datasets, base, people(["p1"]))
    store.datasets.stage_overwrite(base, PEOPLE, rows=people(["y"]))
    store.datasets.stage_create_index(base, [IndexSpec("id", IndexKind.BTREE)])
    store.datasets.write_deletions(base, [0])
    assert store.datasets.head_version(LOCATION) == base.version
    assert ages(store, base) == {f"p{i}": i for i in range(5)}


def test_a_committed_append_is_the_next_version_and_ours(store: Store) -> None:
    base = create(store)
    staged = store.datasets.stage_append(base, numbered(4))
    committed = store.datasets.commit_staged(staged)
    assert committed.version == base.version + 1 == staged.intended_version
    assert ages(store, committed.at) == {f"p{i}": i for i in range(4)}
    (made,) = store.datasets.transactions(LOCATION, first=committed.version, last=committed.version)
    assert (made.uuid, made.kind) == (staged.uuid, OperationKind.APPEND)


def test_a_local_commit_leaves_no_copy_of_its_transaction(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copies() -> list[str]:
        return [info.path for info in local_store.objects.list(f"{LOCATION}/_transactions")]

    base = create(local_store)
    created = copies()
    at = append(local_store, base, numbered(3)).at
    at = local_store.datasets.commit_staged(
        stage_upsert(local_store.datasets, at, people(["p1"]))
    ).at
    assert copies() == created

    def refuse(path: str) -> None:
        raise StoragePermissionError(path=path, reason="read-only folder")

    monkeypatch.setattr(local_store.objects, "delete", refuse)
    at = append(local_store, at, people(["x"])).at
    assert "x" in ages(local_store, at)
    assert len(copies()) == len(created) + 1


def test_a_handle_never_changes(store: Store) -> None:
    base = create(store, numbered(2))
    handle = store.datasets.open(LOCATION)
    append(store, base, people(["x"]))
    assert handle.count() == 2
    assert handle.at == base


def test_an_update_rewrites_inserts_and_deletes_in_one_version(store: Store) -> None:
    base = create(store, numbered(6))
    before = row_ids(store, base)
    handle = store.datasets.open(LOCATION)
    found = handle.scan(
        ScanRequest(
            row_filter=OneOf("id", ("p1", "p4", "p5")), with_row_id=True, with_row_address=True
        )
    ).read_all()
    by_id = {row["id"]: row for row in found.to_pylist()}
    rewritten = found.filter(pa.compute.is_in(found["id"], pa.array(["p1", "p4"])))
    rewritten = rewritten.set_column(1, PEOPLE.field("age"), pa.array([-1, -4], pa.int32()))
    staged = store.datasets.stage_update(
        base,
        rewritten=rewritten,
        inserted=people(["new"], 9),
        deleted=[by_id["p5"]["_rowaddr"]],
    )
    assert staged.counts == RowCounts(inserted=1, updated=2, deleted=1)
    at = store.datasets.commit_staged(staged).at
    assert at.version == base.version + 1
    assert ages(store, at) == {"p0": 0, "p1": -1, "p2": 2, "p3": 3, "p4": -4, "new": 9}
    after = row_ids(store, at)
    assert after.pop("new") not in before.values()
    assert after == {name: number for name, number in before.items() if name != "p5"}


def test_an_update_keeps_when_a_row_was_created(store: Store) -> None:
    base = create(store, numbered(2))
    columns = ("id", "_row_created_at_version", "_row_last_updated_at_version")
    found = store.datasets.open(LOCATION).scan(
        ScanRequest(row_filter=Comparison("id", "=", "p1"), with_row_id=True, with_row_address=True)
    )
    at = store.datasets.commit_staged(
        store.datasets.stage_update(base, rewritten=found.read_all())
    ).at
    rows = store.datasets.open(LOCATION).scan(ScanRequest(columns=columns)).read_all().to_pylist()
    seen = {row["id"]: (row[columns[1]], row[columns[2]]) for row in rows}
    assert seen == {"p0": (base.version, base.version), "p1": (base.version, at.version)}


def test_an_update_can_empty_a_fragment(store: Store) -> None:
    base = create(store, numbered(2))
    rows = store.datasets.open(LOCATION).scan(ScanRequest(with_row_address=True)).read_all()
    staged = store.datasets.stage_update(base, deleted=rows["_rowaddr"], inserted=people(["only"]))
    at = store.datasets.commit_staged(staged).at
    assert ages(store, at) == {"only": 1}
    assert len(store.datasets.open(LOCATION).fragments()) == 1


def test_two_deletions_of_one_fragment_are_refused(store: Store) -> None:
    base = create(store, numbered(4))
    deletions = [
        *store.datasets.write_deletions(base, [0]),
        *store.datasets.write_deletions(base, [1]),
    ]
    with pytest.raises(InvalidScanError, match="two deletions"):
        store.datasets.stage_update(base, deletions=deletions)


def test_deleting_a_row_that_is_gone_is_refused(store: Store) -> None:
    base = create(store, numbered(4))
    at = store.datasets.commit_staged(store.datasets.stage_update(base, deleted=[2])).at
    with pytest.raises(InvalidScanError, match="only 1 of them"):
        store.datasets.write_deletions(at, [2, 3])


def test_an_upsert_replaces_by_key_and_keeps_row_ids(store: Store) -> None:
    base = create(store, numbered(3))
    before = row_ids(store, base)
    staged = stage_upsert(store.datasets, base, people(["p1", "new"], 50))
    assert staged.counts == RowCounts(inserted=1, updated=1)
    store.datasets.verify_staged_files(staged)
    at = store.datasets.commit_staged(staged).at
    assert ages(store, at) == {"p0": 0, "p1": 50, "p2": 2, "new": 50}
    assert row_ids(store, at)["p1"] == before["p1"]


def test_an_overwrite_replaces_content_and_columns(store: Store) -> None:
    base = create(store, numbered(3))
    wider = PEOPLE.append(pa.field("name", pa.utf8()))
    rows = pa.table({"id": ["a"], "age": pa.array([1], pa.int32()), "name": ["A"]}, schema=wider)
    at = store.datasets.commit_staged(store.datasets.stage_overwrite(base, wider, rows=rows)).at
    handle = store.datasets.open(LOCATION)
    assert handle.at == at
    assert handle.schema.equals(wider, check_metadata=True)
    assert handle.scan().read_all().to_pylist() == [{"id": "a", "age": 1, "name": "A"}]
    assert ages(store, base) == {"p0": 0, "p1": 1, "p2": 2}, "the old version stays readable"


def test_an_overwrite_can_keep_row_ids(store: Store) -> None:
    base = create(store, numbered(3))
    rows = store.datasets.open(LOCATION).scan(ScanRequest(with_row_id=True)).read_all()
    rows = rows.take([2, 0])
    staged = store.datasets.stage_overwrite(base, PEOPLE, rows=rows, row_id_column="_rowid")
    at = store.datasets.commit_staged(staged).at
    before = row_ids(store, base)
    assert row_ids(store, at) == {"p2": before["p2"], "p0": before["p0"]}
    later = append(store, at, people(["x"])).at
    assert row_ids(store, later)["x"] not in before.values()


def test_an_overwrite_with_nothing_empties_the_dataset(store: Store) -> None:
    base = create(store, numbered(3))
    at = store.datasets.commit_staged(store.datasets.stage_overwrite(base, PEOPLE)).at
    assert ages(store, at) == {}
    assert store.datasets.open(LOCATION).schema.equals(PEOPLE, check_metadata=True)


def test_a_commit_on_a_moved_head_is_refused_and_nothing_lands(store: Store) -> None:
    base = create(store, numbered(1))
    late = store.datasets.stage_append(base, people(["late"]))
    at = append(store, base, people(["first"])).at
    with pytest.raises(StaleBaseError) as caught:
        store.datasets.commit_staged(late)
    assert (caught.value.expected, caught.value.actual) == (base.version, at.version)
    assert store.datasets.head_version(LOCATION) == at.version
    assert "late" not in ages(store, at)


def test_without_exactness_an_append_may_move_over_another(store: Store) -> None:
    base = create(store, numbered(1))
    late = store.datasets.stage_append(base, people(["late"]))
    at = append(store, base, people(["first"])).at
    committed = store.datasets.commit_staged(late, exact=False)
    assert committed.version == at.version + 1
    assert set(ages(store, committed.at)) == {"p0", "first", "late"}


def test_two_updates_of_one_row_conflict_even_without_exactness(store: Store) -> None:
    base = create(store, numbered(3))
    one = stage_upsert(store.datasets, base, people(["p0"], 10))
    two = stage_upsert(store.datasets, base, people(["p0", "other"], 20))
    at = store.datasets.commit_staged(one).at
    with pytest.raises(StaleBaseError):
        store.datasets.commit_staged(two, exact=False)
    assert store.datasets.head_version(LOCATION) == at.version


def test_a_commit_that_lands_above_somebody_elses_is_told_apart_from_a_refused_one(
    s3: S3Server, s3_store: Store
) -> None:
    base = create(s3_store, numbered(1))
    late = s3_store.datasets.stage_append(base, people(["late"]))
    rival = s3_store.datasets.stage_append(base, people(["first"]))
    # The first listing is our look at the head, the second one is Lance's own.
    s3.interrupt("GET", "_versions", lambda: commit(s3_store, rival), skip=1)
    with pytest.raises(MisplacedCommitError) as caught:
        s3_store.datasets.commit_staged(late)
    assert caught.value.intended == base.version + 1
    assert caught.value.achieved == base.version + 2
    ours, theirs = s3_store.datasets.transactions(
        LOCATION, first=base.version + 1, last=base.version + 2
    )
    assert (ours.uuid, theirs.uuid) == (rival.uuid, late.uuid)


def test_a_commit_that_loses_the_last_step_is_refused(s3: S3Server, s3_store: Store) -> None:
    base = create(s3_store, numbered(1))
    late = s3_store.datasets.stage_append(base, people(["late"]))
    rival = s3_store.datasets.stage_append(base, people(["first"]))
    manifest = manifest_path(LOCATION, None, base.version + 1)
    s3.interrupt("PUT", manifest, lambda: commit(s3_store, rival))
    with pytest.raises(StaleBaseError):
        s3_store.datasets.commit_staged(late)
    head = s3_store.datasets.open(LOCATION)
    assert head.at.version == base.version + 1
    assert "late" not in ages(s3_store, head.at)


def test_a_commit_whose_answer_is_lost_is_recognised_as_ours(s3: S3Server, s3_store: Store) -> None:
    base = create(s3_store, numbered(1))
    staged = s3_store.datasets.stage_append(base, people(["x"]))
    manifest = manifest_path(LOCATION, None, staged.intended_version)
    # The same transaction lands first, as if a request had been sent twice.
    s3.interrupt("PUT", manifest, lambda: commit(s3_store, staged))
    assert s3_store.datasets.commit_staged(staged).version == staged.intended_version
    assert s3_store.datasets.head_version(LOCATION) == staged.intended_version
    assert set(ages(s3_store, s3_store.datasets.open(LOCATION).at)) == {"p0", "x"}


def test_a_commit_that_the_storage_breaks_off_has_an_unknown_outcome(
    s3: S3Server, s3_root: str
) -> None:
    options = s3.options | {"client_max_retries": "0"}
    store = connect(s3_root, storage_options=options)
    base = create(store, numbered(1))
    staged = store.datasets.stage_append(base, people(["x"]))
    manifest = manifest_path(LOCATION, None, staged.intended_version)
    with (
        s3.refusing(manifest, "500 Internal Server Error"),
        pytest.raises(WriteOutcomeUnknownError, match=LOCATION),
    ):
        store.datasets.commit_staged(staged)
    assert store.datasets.commit_staged(staged).version == staged.intended_version


def test_a_restore_brings_old_content_back_with_our_uuid(store: Store) -> None:
    base = create(store, numbered(2))
    late = store.datasets.stage_append(base, people(["late"]))
    moved = append(store, base, people(["x"])).at
    committed = store.datasets.restore(LOCATION, version=base.version, uuid="our-uuid")
    assert (committed.before, committed.version) == (moved.version, moved.version + 1)
    assert ages(store, committed.at) == {"p0": 0, "p1": 1}
    (made,) = store.datasets.transactions(LOCATION, first=committed.version, last=committed.version)
    assert (made.uuid, made.kind) == ("our-uuid", OperationKind.RESTORE)
    with pytest.raises(StaleBaseError):
        store.datasets.commit_staged(late, exact=False)


def test_a_branch_has_its_own_history(store: Store) -> None:
    base = create(store, numbered(2))
    fork = store.datasets.create_branch(LOCATION, "team/etl.01JC", from_version=base.version)
    assert fork == DatasetVersion(LOCATION, "team/etl.01JC", base.version)
    on_fork = append(store, fork, people(["x"])).at
    assert store.datasets.head_version(LOCATION) == base.version
    assert store.datasets.head_version(LOCATION, branch=fork.branch) == on_fork.version
    assert set(ages(store, on_fork)) == {"p0", "p1", "x"}
    restored = store.datasets.restore(
        LOCATION, branch=fork.branch, version=base.version, uuid="back"
    )
    assert set(ages(store, restored.at)) == {"p0", "p1"}
    (listed,) = store.datasets.list_branches(LOCATION)
    assert (listed.name, listed.parent_branch, listed.parent_version) == (
        "team/etl.01JC",
        None,
        base.version,
    )


def test_a_branch_can_be_cut_from_a_branch_and_holds_it(store: Store) -> None:
    base = create(store, numbered(2))
    one = store.datasets.create_branch(LOCATION, "one.1", from_version=base.version)
    on_one = append(store, one, people(["x"])).at
    two = store.datasets.create_branch(
        LOCATION, "two.2", from_branch="one.1", from_version=on_one.version
    )
    assert set(ages(store, two)) == {"p0", "p1", "x"}
    with pytest.raises(RefInUseError, match=r"one\.1"):
        store.datasets.delete_branch(LOCATION, "one.1")
    store.datasets.delete_branch(LOCATION, "two.2")
    store.datasets.delete_branch(LOCATION, "one.1")
    assert store.datasets.list_branches(LOCATION) == ()
    with pytest.raises(DatasetNotFoundError, match=r"one\.1"):
        store.datasets.open(LOCATION, branch="one.1")


def test_branch_names_exist_once(store: Store) -> None:
    base = create(store, numbered(2))
    store.datasets.create_branch(LOCATION, "b.1", from_version=base.version)
    with pytest.raises(RefExistsError, match=r"b\.1"):
        store.datasets.create_branch(LOCATION, "b.1", from_version=base.version)
    with pytest.raises(RefNotFoundError, match="nope"):
        store.datasets.delete_branch(LOCATION, "nope")
    store.datasets.create_branch(LOCATION, "a/b.2", from_version=base.version)
    assert store.datasets.branch_names(LOCATION) == ("a/b.2", "b.1")
    assert store.datasets.has_branch(LOCATION, "a/b.2")
    assert not store.datasets.has_branch(LOCATION, "a/b")


def test_fragments_of_another_lineage_are_refused(store: Store) -> None:
    base = create(store, numbered(2))
    written = store.datasets.write_fragments(base, people(["x"]))
    fork = store.datasets.create_branch(LOCATION, "b.1", from_version=base.version)
    with pytest.raises(InvalidScanError, match="cannot be committed"):
        store.datasets.stage_append(fork, fragments=written)


def test_few_written_rows_are_remembered_and_no_larger_table_for_them(store: Store) -> None:
    at = append(store, create(store, numbered(2)), people(["a", "b"])).at
    handle = store.datasets.open(LOCATION, version=at.version)
    remembered = handle.written_rows(handle.fragments()[-1].fragment_id)
    assert remembered is not None
    assert remembered["id"].to_pylist() == ["a", "b"]
    at = append(store, at, numbered(100_000).slice(70_000, 2)).at
    handle = store.datasets.open(LOCATION, version=at.version)
    assert handle.written_rows(handle.fragments()[-1].fragment_id) is None


def test_tags_pin_versions_against_cleanup(store: Store) -> None:
    base = create(store, numbered(2))
    store.datasets.create_tag(LOCATION, "keep", version=base.version)
    at = base
    for name in "abc":
        at = append(store, at, people([name])).at
    assert store.datasets.list_tags(LOCATION) == (TagInfo("keep", None, base.version),)
    with pytest.raises(RefExistsError):
        store.datasets.create_tag(LOCATION, "keep", version=at.version)
    request = CleanupRequest(keep_versions=1, older_than_s=0)
    preview = store.datasets.cleanup(LOCATION, request)
    assert preview.versions_removed > 0
    assert len(store.datasets.versions(LOCATION)) == at.version
    done = store.datasets.cleanup(LOCATION, request, preview=False)
    assert done.versions_removed == preview.versions_removed
    left = [info.version for info in store.datasets.versions(LOCATION)]
    assert left == [base.version, at.version]
    assert set(ages(store, base)) == {"p0", "p1"}
    with pytest.raises(DatasetVersionNotFoundError, match="cleanup has removed it"):
        store.datasets.open(LOCATION, version=base.version + 1)
    store.datasets.delete_tag(LOCATION, "keep")
    with pytest.raises(RefNotFoundError):
        store.datasets.delete_tag(LOCATION, "keep")


def test_a_version_that_was_never_written_is_told_apart_from_a_removed_one(store: Store) -> None:
    create(store, numbered(1))
    with pytest.raises(DatasetVersionNotFoundError, match="it was never written") as caught:
        store.datasets.open(LOCATION, version=9)
    assert (caught.value.version, caught.value.head) == (9, 2)


def test_a_missing_dataset_is_a_typed_error(store: Store) -> None:
    for call in (
        lambda: store.datasets.open("nodes/none"),
        lambda: store.datasets.open("nodes/none", version=3),
        lambda: store.datasets.head_version("nodes/none"),
        lambda: store.datasets.list_branches("nodes/none"),
    ):
        with pytest.raises(DatasetNotFoundError, match="nodes/none"):
            call()


def test_lost_and_cut_files_are_found_before_the_commit(store: Store) -> None:
    base = create(store, numbered(2))
    staged = store.datasets.stage_append(base, people(["x"]))
    store.datasets.verify_staged_files(staged)
    (file,) = staged.files
    store.objects.put(file.path, b"short")
    with pytest.raises(StagedFilesLostError, match="5 bytes instead of"):
        store.datasets.verify_staged_files(staged)
    store.objects.delete(file.path)
    with pytest.raises(StagedFilesLostError, match="is gone") as caught:
        store.datasets.verify_staged_files(staged)
    assert file.path in str(caught.value)


def test_staged_rows_can_be_read_before_the_commit(store: Store) -> None:
    base = create(store, numbered(2))
    staged = store.datasets.stage_append(base, people(["x"], 7))
    seen = store.datasets.open_staged(staged).scan().read_all()
    assert seen["id"].to_pylist() == ["p0", "p1", "x"]
    assert store.datasets.head_version(LOCATION) == base.version
    assert store.datasets.commit_staged(staged).version == base.version + 1


def test_row_ids_and_addresses_fetch_rows_in_the_order_asked(store: Store) -> None:
    base = create(store, numbered(4))
    at = store.datasets.commit_staged(stage_upsert(store.datasets, base, people(["p1"], 11))).at
    handle = store.datasets.open(LOCATION)
    assert handle.at == at
    rows = handle.scan(ScanRequest(with_row_id=True, with_row_address=True)).read_all().to_pylist()
    by_id = {row["id"]: row for row in rows}
    ids = [by_id[name]["_rowid"] for name in ("p3", "p1", "p0")]
    assert handle.take(ids)["id"].to_pylist() == ["p3", "p1", "p0"]
    assert handle.take([*ids, 999], ["age"]).to_pydict() == {"age": [3, 11, 0]}
    places = [by_id[name]["_rowaddr"] for name in ("p3", "p1", "p0")]
    assert handle.take_addresses(places)["id"].to_pylist() == ["p3", "p1", "p0"]
    old_place_of_p1 = 1
    assert handle.take_addresses([old_place_of_p1, places[0]], ["id"]).to_pydict() == {"id": ["p3"]}
    assert handle.take([]).num_rows == handle.take_addresses([]).num_rows == 0


def test_a_scan_reads_what_was_asked_for(store: Store) -> None:
    base = create(store, numbered(10))
    append(store, base, numbered(10, "q"))
    handle = store.datasets.open(LOCATION)
    first, second = handle.fragments()
    assert (first.rows, second.rows) == (10, 10)
    some = handle.scan(
        ScanRequest(columns=("id",), row_filter=Comparison("age", ">=", pa.scalar(8, pa.int32())))
    ).read_all()
    assert some.to_pydict() == {"id": ["p8", "p9", "q8", "q9"]}
    part = handle.scan(ScanRequest(columns=("id",), fragment_ids=(second.fragment_id,), limit=2))
    assert part.read_all()["id"].to_pylist() == ["q0", "q1"]
    assert handle.count(Comparison("age", "<", pa.scalar(3, pa.int32()))) == 6
    chosen = handle.scan(ScanRequest(columns=("id",), row_ids=(3, 12))).read_all()
    assert chosen["id"].to_pylist() == ["p3", "q2"]
    with pytest.raises(InvalidScanError, match="did you mean `age`"):
        handle.scan(ScanRequest(columns=("aeg",)))
    with pytest.raises(InvalidScanError, match="no fragment 77"):
        handle.scan(ScanRequest(fragment_ids=(77,)))


def test_compaction_keeps_rows_ids_and_one_version(store: Store) -> None:
    at = create(store, numbered(5))
    for name in "abcd":
        at = append(store, at, people([name])).at
    before = row_ids(store, at)
    tasks = store.datasets.plan_compaction(at, CompactionOptions(target_rows=1_000))
    results = [store.datasets.run_compaction(task) for task in tasks]
    assert store.datasets.head_version(LOCATION) == at.version
    staged = store.datasets.stage_compaction(at, results)
    store.datasets.verify_staged_files(staged)
    done = store.datasets.commit_staged(staged)
    assert done.version == at.version + 1
    assert row_ids(store, done.at) == before
    assert len(store.datasets.open(LOCATION).fragments()) == 1
    (made,) = store.datasets.transactions(LOCATION, first=done.version, last=done.version)
    assert (made.uuid, made.kind) == (staged.uuid, OperationKind.REWRITE)
    assert store.datasets.plan_compaction(done.at, CompactionOptions(target_rows=1_000)) == ()


def test_metadata_changes_are_staged_like_everything_else(store: Store) -> None:
    base = create(store)
    staged = store.datasets.stage_metadata(
        base,
        schema_metadata={"omnigraph:internal_schema_version": "3"},
        field_metadata={"age": {"note": "years"}},
    )
    store.datasets.commit_staged(staged)
    schema = store.datasets.open(LOCATION).schema
    assert schema.metadata[b"omnigraph:internal_schema_version"] == b"3"
    assert schema.field("age").metadata == {b"note": b"years"}
    assert schema.field("id").metadata == PEOPLE.field("id").metadata
    with pytest.raises(InvalidScanError, match="no column `aeg`"):
        store.datasets.stage_metadata(base, field_metadata={"aeg": {}})


def test_a_record_cannot_be_committed_under_a_false_uuid(store: Store) -> None:
    staged = store.datasets.stage_create(LOCATION, PEOPLE)
    with pytest.raises(Exception, match="does not hold its transaction"):
        store.datasets.commit_staged(replace(staged, uuid="other"))


@pytest.mark.parametrize(("first", "second"), [(2, 2), (1, 2), (2, 1)])
def test_a_branch_whose_maker_died_before_its_ref_can_be_cut_again(
    local_store: Store, first: int, second: int
) -> None:
    store = local_store
    create(store, numbered(3))
    store.datasets.create_branch(LOCATION, "lock", from_version=first)
    (ref,) = [i.path for i in store.objects.list(LOCATION) if i.path.endswith("branches/lock.json")]
    store.objects.delete(ref)
    assert not store.datasets.has_branch(LOCATION, "lock")
    fork = store.datasets.create_branch(LOCATION, "lock", from_version=second)
    assert len(ages(store, fork)) == (3 if second == 2 else 0)


@pytest.mark.parametrize("vanished", [1, 1_000])
def test_a_version_that_a_cleanup_takes_while_versions_are_listed_is_no_damage(
    local_store: Store, monkeypatch: pytest.MonkeyPatch, vanished: int
) -> None:
    create(local_store, numbered(3))
    versions = lance.LanceDataset.versions
    calls = itertools.count(1)

    def vanishing(dataset: lance.LanceDataset) -> object:
        if next(calls) <= vanished:
            raise ValueError("Not found: _versions/18446744073709551612.manifest")
        return versions(dataset)

    monkeypatch.setattr(lance.LanceDataset, "versions", vanishing)
    if vanished == 1:
        assert [info.version for info in local_store.datasets.versions(LOCATION)] == [1, 2]
    else:
        with pytest.raises(CorruptObjectError):
            local_store.datasets.versions(LOCATION)


@pytest.mark.parametrize("going", [(2,), (3,), (2, 3)])
def test_a_commit_is_refused_that_cannot_be_compared_with_versions_that_a_cleanup_has_removed(
    local_store: Store, going: tuple[int, ...]
) -> None:
    """The library passes over them: rows that were deleted in between would come back."""
    store, other = local_store, connect(local_store.settings.root.uri)
    base = create(store, people(["p0", "p1", "p2"]))
    assert base.version == 2

    def deleting(name: str) -> StagedTransaction:
        found = store.datasets.open(LOCATION, version=base.version).find("id", [name])
        return store.datasets.stage_update(base, deleted=found[ROW_ADDRESS])

    late = deleting("p0")
    at = other.datasets.commit_staged(deleting("p1")).at
    at = append(other, at, people(["new"])).at
    other.datasets.cleanup(LOCATION, CleanupRequest(versions=going), preview=False)
    with pytest.raises(StaleBaseError):
        store.datasets.commit_staged(late, exact=False)
    store.datasets.forget(LOCATION)
    assert set(ages(store, store.datasets.open(LOCATION).at)) == {"p0", "p2", "new"}
