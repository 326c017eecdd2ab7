"""What the design takes from the installed Lance, one test per fact.

Nothing here goes through our own store: when an upgrade of the library locks one of these red,
the design has lost a leg and the named place has to be thought through again.
"""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import obstore
import pyarrow as pa
import pytest
from lance import FragmentMetadata, LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.dataset import ScannerBuilder, serialize_row_addrs
from lance.debug import format_manifest
from lance.fragment import RowIdSequence, write_fragments
from lance.optimize import Compaction
from lance.query import MatchQuery
from obstore.exceptions import GenericError
from obstore.store import from_url

from omnigraph.store.lance.errors import lance_failures
from omnigraph.store.lance.layout import (
    branch_ref_path,
    index_path,
    manifest_path,
    max_fragment_id,
    next_row_id,
    oldest_version,
    tag_ref_path,
    transaction_path,
    transaction_summary,
)
from omnigraph.store.lance.opener import TAIL_BYTES
from omnigraph.store.records import OperationKind
from omnigraph.values import BLOB_EXTENSION, BLOB_STORAGE
from support.people import PEOPLE, numbered, people

NEWCOMER = "new"


def made(root: Path, rows: pa.Table | None = None, *, per_file: int = 1_000_000) -> LanceDataset:
    """Version 1 of a dataset with stable row ids."""
    return lance.write_dataset(
        numbered(20) if rows is None else rows,
        str(root / "t"),
        enable_stable_row_ids=True,
        data_storage_version="2.2",
        max_rows_per_file=per_file,
    )


def upsert(dataset: LanceDataset, *ids: str, age: int = 7) -> Transaction:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.execute_uncommitted(people(ids, age))[0]


def written(dataset: LanceDataset, *ids: str) -> list[FragmentMetadata]:
    return write_fragments(people(ids), dataset, mode="append")


def append(dataset: LanceDataset, *ids: str) -> Transaction:
    return Transaction(dataset.version, LanceOperation.Append(written(dataset, *ids)))


def commit(dataset: LanceDataset, transaction: Transaction) -> LanceDataset:
    return LanceDataset.commit(dataset, transaction, max_retries=0)


def ids_of(dataset: LanceDataset) -> list[str]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def row_ids(dataset: LanceDataset) -> dict[str, int]:
    rows = dataset.to_table(columns=["id"], with_row_id=True).to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


# Staging and committing


def test_staged_work_does_not_move_the_head(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    staged = upsert(dataset, "p1", NEWCOMER)
    written(dataset, "x")
    assert lance.dataset(dataset.uri).version == 1
    assert commit(dataset, staged).version == 2


def test_a_merge_counts_what_it_staged(tmp_path: Path) -> None:
    builder = made(tmp_path).merge_insert("id").when_matched_update_all()
    builder = builder.when_not_matched_insert_all()
    _, counts = builder.execute_uncommitted(people(["p1", "a", "b"]))
    assert counts["num_updated_rows"] == 1
    assert counts["num_inserted_rows"] == 2
    assert counts["num_deleted_rows"] == 0


def test_two_staged_updates_of_one_row_conflict(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    first, second = upsert(dataset, "p0", age=1), upsert(dataset, "p0", "other", age=2)
    commit(dataset, first)
    with pytest.raises(CommitConflictError):
        commit(dataset, second)


def test_two_staged_updates_of_one_fragment_conflict(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    first, second = upsert(dataset, "p0"), upsert(dataset, "p1")
    commit(dataset, first)
    with pytest.raises(CommitConflictError):
        commit(dataset, second)


def test_two_staged_inserts_of_different_keys_both_land(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    first, second = upsert(dataset, "a"), upsert(dataset, "b")
    commit(dataset, first)
    assert {"a", "b"} <= set(ids_of(commit(dataset, second)))


def test_two_staged_inserts_of_the_same_key_both_land(tmp_path: Path) -> None:
    """So exclusivity never comes from Lance's key filter: it does not survive staging."""
    dataset = made(tmp_path)
    first, second = upsert(dataset, "same"), upsert(dataset, "same")
    commit(dataset, first)
    assert ids_of(commit(dataset, second)).count("same") == 2


def test_a_direct_merge_of_the_same_key_from_a_stale_handle_fails(tmp_path: Path) -> None:
    uri = made(tmp_path).uri
    handles = [lance.dataset(uri) for _ in range(3)]

    def put(dataset: LanceDataset, key: str) -> None:
        builder = dataset.merge_insert("id").when_matched_update_all()
        builder.when_not_matched_insert_all().conflict_retries(0).execute(people([key]))

    put(handles[0], "k1")
    put(handles[1], "k2")
    with pytest.raises(OSError, match="concurrent writers"):
        put(handles[2], "k1")


@pytest.mark.parametrize("kind", ["append", "update", "delete"])
def test_a_commit_without_retries_still_moves_over_a_foreign_append(
    tmp_path: Path, kind: str
) -> None:
    """So the achieved version is always compared with the intended one."""
    dataset = made(tmp_path)
    staged = {
        "append": lambda: append(dataset, "late"),
        "update": lambda: upsert(dataset, "p0"),
        "delete": lambda: Transaction(
            1, LanceOperation.Delete([dataset.get_fragment(0).delete_rows([3])], [], "x")
        ),
    }[kind]()
    commit(dataset, append(dataset, "first"))
    assert commit(dataset, staged).version == 3


def test_a_commit_moves_over_index_and_metadata_commits(tmp_path: Path) -> None:
    """So the version of a publish is read from its row, not computed beforehand."""
    dataset = made(tmp_path)
    staged = upsert(dataset, "p0", NEWCOMER)
    indexed = commit(dataset, index_commit(dataset, "BTREE"))
    settings = {"note": "1"}
    indexed.update_config(settings)
    indexed.update_schema_metadata(settings)
    landed = commit(dataset, staged)
    assert landed.version == 5
    columns = ["id", "_row_created_at_version"]
    rows = landed.to_table(columns=columns, filter=f"id = '{NEWCOMER}'").to_pylist()
    assert rows == [{"id": NEWCOMER, "_row_created_at_version": 5}]


def test_a_transaction_keeps_its_uuid_and_properties(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    mine = Transaction(
        1,
        LanceOperation.Append(written(dataset, "x")),
        uuid="0123-mine",
        transaction_properties={"who": "me"},
    )
    head = commit(dataset, mine)
    stored = head.read_transaction(head.version)
    assert stored is not None
    assert (stored.uuid, stored.transaction_properties) == ("0123-mine", {"who": "me"})


@pytest.mark.parametrize("kind", ["append", "update", "large"])
@pytest.mark.parametrize("loss", ["gone", "empty"])
def test_the_transaction_file_of_an_append_or_update_is_a_copy_that_nobody_reads(
    tmp_path: Path, kind: str, loss: str
) -> None:
    base = made(tmp_path)
    if kind == "update":
        staged = upsert(base, "p1", NEWCOMER)
    elif kind == "append":
        staged = append(base, NEWCOMER)
    else:
        rows = people([NEWCOMER, *(f"n{number}" for number in range(300))])
        fragments = write_fragments(rows, base, mode="append", max_rows_per_file=1)
        staged = Transaction(base.version, LanceOperation.Append(fragments))
    stale_append, stale_update = append(base, "late"), upsert(base, "p1")
    commit(base, staged)
    file = Path(base.uri) / "_transactions" / f"{base.version}-{staged.uuid}.txn"
    file.unlink()
    if loss == "empty":
        file.touch()
    found = lance.dataset(base.uri)
    transaction = found.read_transaction(found.version)
    assert transaction is not None
    assert transaction.uuid == staged.uuid
    if kind == "update":
        with pytest.raises(CommitConflictError):
            commit(base, stale_update)
    found = commit(base, stale_append)
    assert {NEWCOMER, "late"} <= set(ids_of(found))
    found = commit(found, upsert(found, "p1"))
    found.cleanup_old_versions(retain_versions=1)
    assert len(found.versions()) == 1
    assert {NEWCOMER, "late"} <= set(ids_of(lance.dataset(base.uri)))


def test_a_version_names_its_transaction_close_to_its_end_and_no_other_one(tmp_path: Path) -> None:
    base = made(tmp_path)
    rows = people([f"n{number}" for number in range(600)])
    fragments = write_fragments(rows, base, mode="append", max_rows_per_file=1)
    first = Transaction(base.version, LanceOperation.Append(fragments))
    middle = commit(base, first)
    second = append(middle, NEWCOMER)
    commit(middle, second)
    names = [f"{base.version}-{first.uuid}.txn", f"{middle.version}-{second.uuid}.txn"]
    newest = sorted(Path(base.uri).glob("_versions/*.manifest"))[:2]
    assert newest[0].stat().st_size > 2 * TAIL_BYTES
    for file, own in zip(newest, reversed(names), strict=True):
        found = [name for name in names if name.encode() in file.read_bytes()]
        assert found == [own]
        assert own.encode() in file.read_bytes()[-TAIL_BYTES:]


def test_transactions_of_every_kind_pickle(tmp_path: Path) -> None:
    dataset = made(tmp_path, per_file=5)
    task = Compaction.plan(dataset, options={"target_rows_per_fragment": 100}).tasks[0]
    for staged in (
        append(dataset, "x"),
        upsert(dataset, "p1"),
        Transaction(1, LanceOperation.Overwrite(PEOPLE, [])),
        Transaction(1, LanceOperation.Restore(1)),
        index_commit(dataset, "BTREE"),
        Transaction(1, LanceOperation.Rewrite([rewrite_group(task.execute(dataset))], [])),
    ):
        copy = pickle.loads(pickle.dumps(staged))
        assert copy.uuid == staged.uuid
        assert type(copy.operation) is type(staged.operation)


def test_an_empty_dataset_can_be_created_by_a_transaction_of_ours(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    mine = Transaction(0, LanceOperation.Overwrite(PEOPLE, []))
    dataset = LanceDataset.commit(
        uri, mine, max_retries=0, enable_v2_manifest_paths=True, enable_stable_row_ids=True
    )
    assert dataset.version == 1
    assert dataset.read_transaction(1).uuid == mine.uuid
    assert dataset.has_stable_row_ids
    assert dataset.data_storage_version == "2.2", "no argument says so: it is the default"
    assert dataset.config() == {}, "nothing cleans up by itself"
    assert dataset.schema.equals(PEOPLE, check_metadata=True)
    with pytest.raises(OSError, match="not found"):
        LanceDataset.commit(
            uri, Transaction(0, LanceOperation.Overwrite(PEOPLE, [])), max_retries=0
        )


# Rows


def test_deletes_can_be_staged_by_key_and_by_offset(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    by_key, counts = (
        dataset.merge_insert("id").when_matched_delete().execute_uncommitted(people(["p2", "p3"]))
    )
    assert counts["num_deleted_rows"] == 2
    assert lance.dataset(dataset.uri).count_rows() == 20
    head = commit(dataset, by_key)
    assert head.count_rows() == 18
    trimmed = head.get_fragment(0).delete_rows([0])
    operation = LanceOperation.Update(updated_fragments=[trimmed])
    assert commit(head, Transaction(head.version, operation)).count_rows() == 17


def test_deleting_every_row_of_a_fragment_returns_nothing(tmp_path: Path) -> None:
    assert made(tmp_path, numbered(3)).get_fragment(0).delete_rows([0, 1, 2]) is None


@pytest.mark.parametrize("branch", [None, "etl.1"])
def test_rewrite_insert_and_delete_fit_in_one_update(tmp_path: Path, branch: str | None) -> None:
    dataset = made(tmp_path, per_file=5)
    if branch is not None:
        dataset = dataset.create_branch(branch)
    before = row_ids(dataset)
    trimmed = [
        dataset.get_fragment(0).delete_rows([1, 3]),
        dataset.get_fragment(2).delete_rows([4]),
    ]
    rewritten = write_fragments(people(["p1", "p14"], -1), dataset, mode="append")
    rewritten[0].row_id_meta = RowIdSequence([before["p1"], before["p14"]]).to_inline_metadata()
    operation = LanceOperation.Update(
        updated_fragments=trimmed, new_fragments=rewritten + written(dataset, NEWCOMER)
    )
    base = dataset.version
    head = commit(dataset, Transaction(base, operation))
    assert head.version == base + 1
    after = row_ids(head)
    assert after.pop(NEWCOMER) not in before.values()
    assert after == {name: number for name, number in before.items() if name != "p3"}
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    rows = {
        row.pop("id"): tuple(row.values()) for row in head.to_table(columns=columns).to_pylist()
    }
    assert rows["p1"] == (1, head.version)
    assert rows["p2"] == (1, 1)
    assert rows[NEWCOMER] == (head.version, head.version)


def test_two_partial_deletions_of_one_fragment_lose_one(tmp_path: Path) -> None:
    """So a fragment gets one deletion, and the driver refuses a second."""
    dataset = made(tmp_path)
    fragment = dataset.get_fragment(0)
    one, two = fragment.delete_rows([1, 2]), fragment.delete_rows([3])
    operation = LanceOperation.Delete([one, two], [], "rows")
    assert commit(dataset, Transaction(1, operation)).count_rows() != 17


def test_a_merge_keeps_row_ids_of_updated_rows(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    assert row_ids(commit(dataset, upsert(dataset, "p5")))["p5"] == row_ids(dataset)["p5"]


def test_an_overwrite_can_carry_row_ids_and_new_rows_never_get_used_ones(tmp_path: Path) -> None:
    dataset = made(tmp_path, numbered(4))
    fragments = write_fragments(people(["p3", "p0"]), dataset, mode="overwrite")
    fragments[0].row_id_meta = RowIdSequence([3, 0]).to_inline_metadata()
    head = commit(dataset, Transaction(1, LanceOperation.Overwrite(PEOPLE, fragments)))
    assert row_ids(head) == {"p3": 3, "p0": 0}
    assert head.has_stable_row_ids
    head = commit(head, append(head, "x"))
    assert row_ids(head)["x"] == 4


def test_fragments_travel_as_json(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    (fragment,) = written(dataset, "x")
    copy = FragmentMetadata.from_json(json.dumps(fragment.to_json()))
    assert "x" in ids_of(commit(dataset, Transaction(1, LanceOperation.Append([copy]))))


def test_fragments_belong_to_the_lineage_they_were_written_under(tmp_path: Path) -> None:
    """So a table is forked before anything is staged for it."""
    dataset = made(tmp_path)
    staged = written(dataset, "x")
    fork = dataset.create_branch("b")
    head = commit(fork, Transaction(fork.version, LanceOperation.Append(staged)))
    with pytest.raises(Exception, match=r"(?i)not found"):
        head.to_table()


def test_a_commit_does_not_look_for_its_files(tmp_path: Path) -> None:
    """So every staged file is checked before the first phase."""
    dataset = made(tmp_path)
    staged = written(dataset, "x")
    for file in staged[0].files:
        (Path(dataset.uri) / "data" / file.path).unlink()
    assert commit(dataset, Transaction(1, LanceOperation.Append(staged))).version == 2


def test_taking_rows_by_id_keeps_the_order_and_leaves_out_the_dead(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    head = commit(dataset, upsert(dataset, "p5"))
    trimmed = head.get_fragment(0).delete_rows([0])
    head = commit(head, Transaction(head.version, LanceOperation.Delete([trimmed], [], "x")))
    rows = head._take_rows([7, 5, 0, 999, 5], columns=["id", "_rowid"])
    assert rows.to_pylist() == [
        {"id": "p7", "_rowid": 7},
        {"id": "p5", "_rowid": 5},
        {"id": "p5", "_rowid": 5},
    ]


def test_a_row_id_allowlist_takes_stable_ids(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    head = commit(dataset, upsert(dataset, "p5"))
    allowed = serialize_row_addrs([5, 2])
    rows = head.scanner(columns=["id"], row_addr_allowlist=allowed).to_table()
    assert sorted(rows["id"].to_pylist()) == ["p2", "p5"]


# Restore


@pytest.mark.parametrize("branch", [None, "etl.1"])
def test_a_restore_in_a_transaction_of_ours_brings_old_content_back(
    tmp_path: Path, branch: str | None
) -> None:
    dataset = made(tmp_path)
    if branch is not None:
        dataset = dataset.create_branch(branch)
    base = dataset.version
    head = commit(dataset, upsert(dataset, NEWCOMER))
    mine = Transaction(head.version, LanceOperation.Restore(base))
    restored = commit(head, mine)
    assert restored.version == head.version + 1
    assert ids_of(restored) == ids_of(dataset)
    assert restored.read_transaction(restored.version).uuid == mine.uuid


def test_a_restore_from_a_stale_handle_over_newer_commits_is_not_refused(tmp_path: Path) -> None:
    stale = made(tmp_path)
    head = commit(stale, append(stale, "a"))
    head = commit(head, append(head, "b"))
    restored = commit(stale, Transaction(1, LanceOperation.Restore(1)))
    assert restored.version == head.version + 1
    assert ids_of(restored) == ids_of(stale)


@pytest.mark.parametrize("kind", ["append", "update", "compaction", "index"])
def test_after_a_restore_every_older_staged_transaction_is_refused(
    tmp_path: Path, kind: str
) -> None:
    dataset = made(tmp_path, per_file=5)
    late = {
        "append": lambda: append(dataset, "late"),
        "update": lambda: upsert(dataset, "p1"),
        "compaction": lambda: compaction(dataset),
        "index": lambda: index_commit(dataset, "BTREE"),
    }[kind]()
    head = commit(dataset, append(dataset, "x"))
    commit(head, Transaction(head.version, LanceOperation.Restore(1)))
    with pytest.raises(CommitConflictError):
        commit(dataset, late)


# Branches, tags, cleanup


def test_branch_names_take_dots_and_slashes_and_branches_read_their_own_rows(
    tmp_path: Path,
) -> None:
    dataset = made(tmp_path)
    fork = dataset.create_branch("team/etl.01JC000000000000000000TEST")
    assert NEWCOMER in ids_of(commit(fork, upsert(fork, NEWCOMER)))
    assert NEWCOMER not in ids_of(lance.dataset(dataset.uri))


def test_a_branch_copies_no_rows(tmp_path: Path) -> None:
    dataset = made(tmp_path, numbered(10_000), per_file=100)
    dataset.create_branch("b")
    files = [path for path in (Path(dataset.uri) / "tree" / "b").rglob("*") if path.is_file()]
    assert sorted({path.parent.name for path in files}) == ["_transactions", "_versions"]


def test_a_branch_of_a_branch_reads_and_uses_the_indexes_of_both(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    dataset = commit(dataset, index_commit(dataset, "BTREE"))
    one = dataset.create_branch("a/x")
    one = commit(one, append(one, NEWCOMER))
    two = one.create_branch("b")
    assert two.count_rows() == 21
    assert two.to_table(filter="id = 'p5'").num_rows == 1
    assert "ScalarIndexQuery" in two.scanner(filter="id = 'p5'").explain_plan()


def test_a_branch_that_another_was_cut_from_stays(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    dataset.create_branch("a").create_branch("b")
    with pytest.raises(OSError, match="referenced"):
        dataset.branches.delete("a")
    dataset.branches.delete("b")
    dataset.branches.delete("a")


def test_a_branch_is_opened_by_its_directory(tmp_path: Path) -> None:
    """Our stores open `<dataset>/tree/<branch>` at a version: one look, no listing."""
    dataset = made(tmp_path)
    fork = dataset.create_branch("team/etl.1")
    fork = commit(fork, append(fork, "x"))
    opened = lance.dataset(f"{dataset.uri}/tree/team/etl.1", version=fork.version)
    assert ids_of(opened) == ids_of(fork)
    assert list(opened.branches.list()) == ["team/etl.1"]
    assert opened.create_branch("second.2").count_rows() == 21


def test_a_commit_on_a_branch_that_was_just_deleted_is_acknowledged_into_nowhere(
    tmp_path: Path,
) -> None:
    """So a publish checks once more, afterwards, that its branch still exists."""
    dataset = made(tmp_path)
    fork = dataset.create_branch("b")
    staged = append(fork, "x")
    dataset.branches.delete("b")
    assert commit(fork, staged).version == fork.version + 1
    assert list(lance.dataset(dataset.uri).branches.list()) == []


def test_tags_and_fork_points_survive_cleanup(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    head = commit(dataset, append(dataset, "a"))
    head.tags.create("pinned", 1)
    fork = head.create_branch("b", 2)
    for name in "cd":
        head = commit(head, append(head, name))
    head.cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)
    left = [entry["version"] for entry in lance.dataset(dataset.uri).versions()]
    assert left == [1, 2, 4], "pinned, cut from, newest"
    assert ids_of(lance.dataset(dataset.uri, version=1)) == ids_of(dataset)
    assert len(ids_of(lance.dataset(f"{dataset.uri}/tree/b", version=fork.version))) == 21


def test_a_dataset_with_branches_cannot_be_moved(tmp_path: Path) -> None:
    """Branches name the absolute place of their parent's files; a copy reads the original."""
    dataset = made(tmp_path)
    fork = dataset.create_branch("b")
    assert [base.path for base in fork.base_paths().values()] == [dataset.uri]
    shutil.move(tmp_path / "t", tmp_path / "moved")
    assert lance.dataset(str(tmp_path / "moved")).count_rows() == 20
    with pytest.raises(Exception, match=r"(?i)not found"):
        lance.dataset(str(tmp_path / "moved" / "tree" / "b")).to_table()


def test_memory_datasets_are_not_shared_between_handles() -> None:
    """So there is no in-memory dataset store."""
    lance.write_dataset(numbered(3), "memory://fact")
    with pytest.raises(ValueError, match="not found"):
        lance.dataset("memory://fact")


# Indexes and compaction


def index_commit(dataset: LanceDataset, kind: str, column: str = "id") -> Transaction:
    fragments = [fragment.fragment_id for fragment in dataset.get_fragments()]
    segment = index_segment(dataset, kind, column, fragments)
    return Transaction(dataset.version, LanceOperation.CreateIndex([segment], []))


def index_segment(dataset: LanceDataset, kind: str, column: str, fragments: list[int]) -> Any:
    options: dict[str, Any] = {"num_partitions": 1} if kind.startswith("IVF") else {}
    if kind == "IVF_PQ":
        options |= {"num_sub_vectors": 2, "num_bits": 4}
    segment = dataset.create_index_uncommitted(
        column, kind, name=f"{column}_idx", replace=True, fragment_ids=fragments, **options
    )
    return dataset.merge_existing_index_segments([segment]) if kind == "INVERTED" else segment


def rewrite_group(result: Any) -> LanceOperation.RewriteGroup:
    return LanceOperation.RewriteGroup(result.original_fragments, result.new_fragments)


def compaction(dataset: LanceDataset, *, first_id: int | None = None) -> Transaction:
    plan = Compaction.plan(dataset, options={"target_rows_per_fragment": 10_000})
    groups = []
    for task in plan.tasks:
        result: Any = task.execute(dataset)
        arriving = result.new_fragments
        if first_id is not None:
            for number, fragment in enumerate(arriving, first_id):
                fragment.id = number
        groups.append(LanceOperation.RewriteGroup(result.original_fragments, arriving))
    return Transaction(dataset.version, LanceOperation.Rewrite(groups, []))


def test_compaction_is_staged_and_its_tasks_and_results_pickle(tmp_path: Path) -> None:
    dataset = made(tmp_path, per_file=5)
    plan = Compaction.plan(dataset, options={"target_rows_per_fragment": 100})
    tasks = pickle.loads(pickle.dumps(plan.tasks))
    results = pickle.loads(pickle.dumps([task.execute(dataset) for task in tasks]))
    assert lance.dataset(dataset.uri).version == 1
    Compaction.commit(dataset, results)
    head = lance.dataset(dataset.uri)
    assert (head.version, head.count_rows()) == (3, 20), "its own commit makes two versions"


def test_compaction_as_a_rewrite_of_ours_is_one_version_and_keeps_row_ids(tmp_path: Path) -> None:
    dataset = made(tmp_path, per_file=5)
    staged = compaction(dataset, first_id=4)
    head = commit(dataset, staged)
    assert head.version == 2
    assert head.read_transaction(2).uuid == staged.uuid
    assert row_ids(head) == row_ids(dataset)
    assert [fragment.fragment_id for fragment in head.get_fragments()] == [4]


RICH = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("word", pa.utf8()),
        pa.field("place", pa.list_(pa.float32(), 4)),
    ]
)


def place(number: int) -> list[float]:
    """A point that is far from those of other numbers."""
    return np.random.default_rng(number).uniform(-1, 1, 4).astype(np.float32).tolist()


def rich(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "word": [f"word{number}x common" for number in numbers],
            "place": pa.array([place(number) for number in numbers], pa.list_(pa.float32(), 4)),
        },
        schema=RICH,
    )


def find_by_id(dataset: LanceDataset, number: int) -> list[str]:
    return dataset.to_table(columns=["id"], filter=f"id = 'k{number}'")["id"].to_pylist()


def find_by_text(dataset: LanceDataset, number: int) -> list[str]:
    query = MatchQuery(f"word{number}x", "word")
    scan = dataset.scanner(
        columns=["id"], full_text_query=query, disable_scoring_autoprojection=True
    )
    return scan.to_table()["id"].to_pylist()


def find_by_part(dataset: LanceDataset, number: int) -> list[str]:
    return dataset.to_table(columns=["id"], filter=f"contains(word, 'word{number}x')")[
        "id"
    ].to_pylist()


def find_by_place(dataset: LanceDataset, number: int) -> list[str]:
    query = {
        "column": "place",
        "q": place(number),
        "k": 1,
        "refine_factor": 100,
    }
    scan = dataset.scanner(columns=["id"], nearest=query, disable_scoring_autoprojection=True)
    return scan.to_table()["id"].to_pylist()


INDEX_KINDS = [
    ("BTREE", "id", find_by_id),
    ("BITMAP", "id", find_by_id),
    ("INVERTED", "word", find_by_text),
    ("NGRAM", "word", find_by_part),
    ("IVF_FLAT", "place", find_by_place),
    ("IVF_PQ", "place", find_by_place),
    ("IVF_HNSW_SQ", "place", find_by_place),
]


@pytest.mark.parametrize(("kind", "column", "find"), INDEX_KINDS)
def test_every_index_kind_is_staged_extended_and_survives_compaction(
    tmp_path: Path, kind: str, column: str, find: Callable[[LanceDataset, int], list[str]]
) -> None:
    def check(dataset: LanceDataset, last: int) -> None:
        for number in (0, 7, 149, last):
            assert find(dataset, number) == [f"k{number}"]

    dataset = made(tmp_path, rich(0, 300), per_file=100)
    head = commit(dataset, index_commit(dataset, kind, column))
    assert head.version == 2
    check(head, 299)

    more = write_fragments(rich(300, 300), head, mode="append")
    head = commit(head, Transaction(2, LanceOperation.Append(more)))
    check(head, 599)

    segment = index_segment(head, kind, column, [3])
    head = commit(head, Transaction(3, LanceOperation.CreateIndex([segment], [])))
    (described,) = head.describe_indices()
    assert (len(described.segments), described.num_rows_indexed) == (2, 600)
    check(head, 599)

    head = commit(head, compaction(head, first_id=4))
    check(head, 599)
    (described,) = head.describe_indices()
    # The 300 rows that were not rewritten stay covered in any case. A BTREE points at addresses
    # and loses the others; the other kinds hold row ids.
    assert described.num_rows_indexed == (300 if kind == "BTREE" else 600)


def test_a_rewrite_without_fragment_ids_makes_a_text_index_find_rows_twice(
    tmp_path: Path,
) -> None:
    """So we number the new fragments of a compaction ourselves."""
    dataset = made(tmp_path, rich(0, 40), per_file=20)
    head = commit(dataset, index_commit(dataset, "INVERTED", "word"))
    head = commit(head, compaction(head))
    (described,) = head.describe_indices()
    assert list(described.segments[0].fragment_ids) == [0], "a fragment that does not exist"
    segment = index_segment(head, "INVERTED", "word", [2])
    head = commit(head, Transaction(head.version, LanceOperation.CreateIndex([segment], [])))
    assert find_by_text(head, 7) == ["k7", "k7"]


def test_an_uncommitted_text_segment_must_be_merged_before_it_can_be_read(tmp_path: Path) -> None:
    dataset = made(tmp_path, rich(0, 20))
    segment = dataset.create_index_uncommitted(
        "word", "INVERTED", name="word_idx", fragment_ids=[0]
    )
    assert all(file.path.startswith("staging/") for file in segment.files)
    merged = dataset.merge_existing_index_segments([segment])
    assert not any(file.path.startswith("staging/") for file in merged.files)


def test_the_highest_fragment_id_is_read_from_the_manifest(tmp_path: Path) -> None:
    dataset = made(tmp_path, per_file=5)
    operation = LanceOperation.Update(removed_fragment_ids=[3])
    head = commit(dataset, Transaction(1, operation))
    assert [fragment.fragment_id for fragment in head.get_fragments()] == [0, 1, 2]
    assert max_fragment_id(head._ds.serialized_manifest()) == 3
    shown = "".join(format_manifest(head).split())
    assert "max_fragment_id:Some(3" in shown


def test_a_compaction_that_rewrote_an_index_cannot_be_read_as_a_transaction(
    tmp_path: Path,
) -> None:
    """So our store falls back to the transaction file."""
    dataset = made(tmp_path, per_file=5)
    head = commit(dataset, index_commit(dataset, "BTREE"))
    plan = Compaction.plan(head, options={"target_rows_per_fragment": 100})
    Compaction.commit(head, [task.execute(head) for task in plan.tasks])
    head = lance.dataset(dataset.uri)
    with pytest.raises(TypeError, match="RewrittenIndex"):
        head.read_transaction(head.version)
    tracked = head.tracked_files(min_version=head.version).read_all().to_pylist()
    (name,) = [
        row["path"]
        for row in tracked
        if row["type"] == "transaction file" and row["version"] == head.version
    ]
    uuid, kind = transaction_summary((Path(dataset.uri) / name).read_bytes())
    assert kind is OperationKind.REWRITE
    assert uuid in name


# Blobs


def test_blobs_survive_compaction(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.utf8(), nullable=False),
            pa.field("content", BLOB_STORAGE, metadata=BLOB_EXTENSION),
        ]
    )
    contents = [None, b"", b"small", b"m" * 200_000, b"l" * 5_000_000]
    rows = pa.table(
        {
            "id": [str(number) for number in range(5)],
            "content": pa.array(
                [None if data is None else {"data": data, "uri": None} for data in contents],
                BLOB_STORAGE,
            ),
        },
        schema=schema,
    )
    dataset = made(tmp_path, rows)
    more = write_fragments(rows, dataset, mode="append")
    head = commit(dataset, Transaction(1, LanceOperation.Append(more)))
    head = commit(head, compaction(head, first_id=2))
    assert len(head.get_fragments()) == 1
    found = head.read_blobs("content", ids=list(range(10)), preserve_order=True)
    assert [data for _, data in found] == contents + contents
    background = [path for path in (Path(dataset.uri) / "data").iterdir() if path.is_dir()]
    names = {str(file.path) for fragment in head.get_fragments() for file in fragment.data_files()}
    assert {f"{path.name}.lance" for path in background} >= names, "large values lie apart"


# Files


def test_files_lie_where_the_layout_says(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    mine = append(dataset, "x")
    head = commit(dataset, mine)
    head.tags.create("pin", 1)
    fork = head.create_branch("team/b.1")
    on_fork = append(fork, "y")
    commit(fork, on_fork)
    indexed = index_commit(head, "BTREE")
    segment = indexed.operation.new_indices[0]
    for path in (
        manifest_path("t", None, 2),
        transaction_path("t", None, read_version=1, uuid=mine.uuid),
        manifest_path("t", "team/b.1", 3),
        transaction_path("t", "team/b.1", read_version=2, uuid=on_fork.uuid),
        branch_ref_path("t", "team/b.1"),
        tag_ref_path("t", "pin"),
        *(index_path("t", None, uuid=segment.uuid, file_name=f.path) for f in segment.files),
    ):
        assert (tmp_path / path).is_file(), path


def test_a_detached_commit_is_readable_and_moves_no_head(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    detached = LanceDataset.commit(dataset, append(dataset, "x"), detached=True)
    assert lance.dataset(dataset.uri).version == 1
    assert lance.dataset(dataset.uri, version=detached.version).count_rows() == 21
    assert detached.version >= 2**63
    assert (tmp_path / manifest_path("t", None, detached.version)).is_file()


@pytest.mark.parametrize("content", ["", "{", '{"version":1}', '{"version":99}', None])
def test_the_version_hint_is_only_a_hint(tmp_path: Path, content: str | None) -> None:
    """So it needs no flushing."""
    dataset = made(tmp_path)
    commit(dataset, append(dataset, "x"))
    hint = Path(dataset.uri) / "_versions" / "latest_version_hint.json"
    if content is None:
        hint.unlink()
    else:
        hint.write_text(content)
    assert lance.dataset(dataset.uri).version == 2


def test_removing_a_torn_newest_manifest_brings_the_version_before_back(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    commit(dataset, append(dataset, "x"))
    newest = tmp_path / manifest_path("t", None, 2)
    newest.write_bytes(newest.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"too small|sufficient"):
        lance.dataset(dataset.uri)
    assert lance.dataset(dataset.uri, version=1).count_rows() == 20
    newest.unlink()
    assert lance.dataset(dataset.uri).version == 1


def test_a_damaged_manifest_can_panic_outside_of_exception(tmp_path: Path) -> None:
    """So the class of a panic is looked for at the moment of catching."""
    dataset = made(tmp_path)
    manifest = tmp_path / manifest_path("t", None, 1)
    data = bytearray(manifest.read_bytes())
    data[:4] = (2**30).to_bytes(4, "little")
    manifest.write_bytes(bytes(data))
    with pytest.raises(BaseException, match="out of range") as caught:
        lance.dataset(dataset.uri)
    assert not isinstance(caught.value, Exception)
    assert isinstance(caught.value, lance_failures())


@pytest.mark.parametrize("client", ["lance", "obstore"])
def test_both_clients_prefer_the_service_endpoint_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    """So options that contradict it are refused: obstore has no option that would win."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "aws_region": "us-east-1",
    }
    once = {"allow_http": "true", "client_max_retries": "0"}
    if client == "lance":
        with pytest.raises(ValueError, match=r"127\.0\.0\.1:2"):
            lance.dataset("s3://bucket/x", version=1, storage_options=options | once)
    else:
        store = from_url(
            "s3://bucket/x",
            config=options,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        with pytest.raises(GenericError, match=r"127\.0\.0\.1:2"):
            obstore.get(store, "y")


TRACED = """
import lance, sys
from lance import LanceOperation, Transaction
from lance.fragment import write_fragments
dataset = lance.dataset(sys.argv[1])
rows = dataset.to_table().slice(0, 1)
staged = Transaction(1, LanceOperation.Append(write_fragments(rows, dataset, mode="append")))
lance.LanceDataset.commit(dataset, staged, max_retries=0)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_lance_never_flushes(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,sync,syncfs,sync_file_range,linkat,renameat"
    command = ["strace", "-f", "-o", str(trace), "-e", calls, sys.executable, "-c", TRACED]
    outcome = subprocess.run([*command, dataset.uri], check=False, capture_output=True, text=True)
    if "Operation not permitted" in outcome.stderr:
        pytest.skip("this machine does not allow tracing")
    assert outcome.returncode == 0, outcome.stderr
    text = trace.read_text()
    assert "linkat(" in text, "the trace saw the commit"
    assert "sync" not in text.replace("O_CLOEXEC", "")


def test_scans_can_be_made_without_the_builder(tmp_path: Path) -> None:
    """`store.lance_handle` skips the builder: its deep copies take longer than a look-up."""
    dataset = made(tmp_path)
    options = {
        "columns": ["id"],
        "filter": "age >= 15",
        "limit": 3,
        "offset": 1,
        "with_row_id": True,
        "prefilter": False,
        "scan_in_order": True,
        "use_stats": True,
        "fast_search": False,
        "strict_batch_size": False,
        "disable_scoring_autoprojection": False,
    }
    native = lance.LanceScanner(dataset._ds.scanner(**options), dataset)
    built = dataset.scanner(**options)
    assert native.to_table() == built.to_table()
    assert native.explain_plan() == built.explain_plan()


def test_the_builder_says_nothing_that_scans_without_it_leave_out(tmp_path: Path) -> None:
    builder = ScannerBuilder(made(tmp_path))
    said = {name.lstrip("_"): value for name, value in vars(builder).items() if value is not None}
    defaults = {name: value for name, value in said.items() if value is not False and name != "ds"}
    assert defaults == {"scan_in_order": True, "use_stats": True}


def test_a_merge_refuses_another_nullability_and_a_projection_does_not(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    required = PEOPLE.set(1, PEOPLE.field("age").with_nullable(False))
    schema = lance.schema.LanceSchema.from_pyarrow(required)
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    with pytest.raises(OSError, match="nullable"):
        LanceDataset.commit(dataset, LanceOperation.Merge(fragments, schema), read_version=1)
    projected = LanceDataset.commit(dataset, LanceOperation.Project(schema), read_version=1)
    assert not projected.schema.field("age").nullable
    assert projected.to_table().num_rows == 20


def test_files_of_added_columns_follow_that_of_the_rows(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    [fragment] = dataset.get_fragments()
    first = fragment.metadata.files[0].path
    more = pa.table({"size": range(20)}).to_reader()
    after, schema = fragment.merge_columns(more)
    assert next(file.path for file in after.files) == first
    merged = LanceDataset.commit(dataset, LanceOperation.Merge([after], schema), read_version=1)
    assert merged.to_table()["size"].to_pylist() == list(range(20))
    assert next(file.path for file in merged.get_fragments()[0].metadata.files) == first


def test_a_dropped_column_stays_in_its_file(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    [before] = dataset.get_fragments()[0].metadata.files
    dataset.drop_columns(["age"])
    [after] = dataset.get_fragments()[0].metadata.files
    assert (after.path, after.fields) == (before.path, before.fields)


# -- fragments that come from a branch -------------------------------------------------------------


def test_fragments_without_row_ids_are_numbered_in_their_order(tmp_path: Path) -> None:
    """`store.lance.links` knows the ids of new rows before the commit."""
    dataset = made(tmp_path)
    first = next_row_id(dataset._ds.serialized_manifest())
    assert first == 20
    one, kept, two = (written(dataset, *ids) for ids in (("a", "b"), ("p1", "a"), ("c",)))
    kept[0].row_id_meta = RowIdSequence([1, first + 1]).to_inline_metadata()
    trimmed = dataset.get_fragment(0).delete_rows([1])
    fragments = [*one, *kept, *two]
    for number, fragment in enumerate(fragments, 7):
        fragment.id = number
    operation = LanceOperation.Update(updated_fragments=[trimmed], new_fragments=fragments)
    after = commit(dataset, Transaction(dataset.version, operation))
    assert [fragment.fragment_id for fragment in after.get_fragments()] == [0, 7, 8, 9]
    assert next_row_id(after._ds.serialized_manifest()) == first + 3
    numbered_rows = [
        RowIdSequence.from_inline_metadata(after.get_fragment(number).metadata.row_id_meta)
        .to_pyarrow()
        .to_pylist()
        for number in (7, 8, 9)
    ]
    assert numbered_rows == [[first, first + 1], [1, first + 1], [first + 2]]


def test_a_commit_derives_the_versions_of_rows_whatever_a_fragment_says(tmp_path: Path) -> None:
    """So `store.lance.links` takes no fragment with rows that the source has only moved."""
    dataset = made(tmp_path)
    [fragment] = written(dataset, "p1")
    known = dataset.get_fragment(0).metadata
    fragment.row_id_meta = RowIdSequence([1]).to_inline_metadata()
    fragment.last_updated_at_version_meta = known.last_updated_at_version_meta
    trimmed = dataset.get_fragment(0).delete_rows([1])
    operation = LanceOperation.Update(updated_fragments=[trimmed], new_fragments=[fragment])
    after = commit(dataset, Transaction(dataset.version, operation))
    made_of = json.loads(after.get_fragment(1).metadata.last_updated_at_version_meta.json())
    assert oldest_version(bytes(made_of["inline"])) == after.version == 2
    columns = ["_row_created_at_version", "_row_last_updated_at_version"]
    rows = after.to_table(columns=columns, filter="id = 'p1'").to_pylist()
    assert rows == [dict(zip(columns, (1, 2), strict=True))]


def test_a_branch_goes_on_with_the_versions_of_what_it_was_cut_from(tmp_path: Path) -> None:
    """`store.lance.links` compares versions of rows with that of the base."""
    first = made(tmp_path)
    dataset = commit(first, append(first, NEWCOMER))
    branch = dataset.create_branch("b")
    assert branch.version == dataset.version == 2
    assert commit(branch, append(branch, "c")).version == 3


def test_the_file_of_a_branch_says_what_it_was_cut_from(tmp_path: Path) -> None:
    """`LanceRefs.branch` reads it: listing fails when any other one is torn."""
    dataset = made(tmp_path)
    branch = dataset.create_branch("a/x")
    commit(branch, append(branch, NEWCOMER)).create_branch("b", ("a/x", 2))
    refs = [
        json.loads((tmp_path / branch_ref_path("t", name)).read_text()) for name in ("a/x", "b")
    ]
    assert [(ref["parentBranch"], ref["parentVersion"]) for ref in refs] == [(None, 1), ("a/x", 2)]
