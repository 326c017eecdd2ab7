"""A write that dies anywhere is afterwards wholly there or wholly absent."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, Repository
from omnigraph.manifest.errors import CommitSettledError, ExpectedVersionMismatchError
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery, RecoveryKind, Sidecar, Verdict, WriterKind, failpoints
from omnigraph.recovery.failpoints import FailpointError
from omnigraph.recovery.sidecar import FOLDER, UnreadableSidecarError
from omnigraph.recovery.sweep import RECOVERY_ACTOR, RecoveryStoppedError
from omnigraph.store.errors import StaleBaseError
from omnigraph.write.strays import DriftNeedsRepairError
from support.jobs import append_job, committer
from support.writer import people

pytestmark = pytest.mark.usefixtures("disarmed")

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
"""
WRITE_POINTS = [name for name in failpoints.FAILPOINTS if name.startswith("write.")]
BEFORE_RECORD = {"write.post_stage", "write.turn_taken"}
PUBLISHED = {"write.published", "write.sidecar_deleted"}


@pytest.fixture
def root(tmp_path: Path) -> str:
    place = str(tmp_path / "graph")
    Graph.init(place, SCHEMA, durability="process").close()
    return place


def cities(*names: str) -> pa.Table:
    return pa.table({"id": list(names), "name": list(names)})


def repository_at(root: str, mode: OpenMode = OpenMode.READ_WRITE) -> Repository:
    return Graph.open(root, mode=mode, durability="process")._repository


def write_both(repository: Repository, branch: str = "main") -> None:
    job = append_job(
        repository, {"node:Person": people("ann"), "node:City": cities("kiel")}, branch=branch
    )
    committer(repository).commit(job)


def stored(repository: Repository, branch: str = "main") -> dict[str, list[str]]:
    snapshot = repository.history.snapshot(repository.branches.resolve(BranchName.parse(branch)))
    return {
        key: sorted(snapshot.open(key).scan().read_all()["id"].to_pylist())
        for key in snapshot.entries
    }


def assert_consistent(repository: Repository, branch: str = "main") -> None:
    """No record is left, and every published version is the head of its lineage."""
    assert repository.store.objects.list(FOLDER) == ()
    snapshot = repository.history.snapshot(repository.branches.resolve(BranchName.parse(branch)))
    for entry in snapshot.entries.values():
        head = repository.store.datasets.head_version(entry.location, branch=entry.table_branch)
        assert head == entry.table_version


EMPTY = {"node:City": [], "node:Person": []}
FULL = {"node:City": ["kiel"], "node:Person": ["ann"]}


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        (kind, point)
        for kind in (WriterKind.LOAD, WriterKind.BRANCH_MERGE)
        for point in WRITE_POINTS
        if kind is WriterKind.BRANCH_MERGE or point != "write.sidecar_confirmed"
    ],
)
@pytest.mark.parametrize("branch", ["main", "draft"])
def test_a_write_that_dies_at_a_failpoint_is_all_or_nothing(
    root: str, point: str, branch: str, kind: WriterKind
) -> None:
    first = repository_at(root)
    if branch != "main":
        Graph.open(root, durability="process").branch_create(branch)
    rows = {"node:Person": people("ann"), "node:City": cities("kiel")}
    job = append_job(first, rows, branch=branch, kind=kind)
    failpoints.arm(point)
    with pytest.raises(FailpointError):
        committer(first).commit(job)
    failpoints.disarm()

    reopened = repository_at(root)
    content = stored(reopened, branch)
    assert content in (EMPTY, FULL)
    assert_consistent(reopened, branch)
    audit = Recovery(reopened).log.rows()
    if point in BEFORE_RECORD or point == "write.sidecar_deleted":
        assert audit == []
    else:
        assert [row.operation_id for row in audit] == [job.operation_id]
        rolled_back = audit[0].recovery_kind is RecoveryKind.ROLLED_BACK
        assert content == (EMPTY if rolled_back else FULL)
    if point in PUBLISHED or point == "write.sidecar_confirmed":
        assert content == FULL
    if point == "write.phase_b_done":
        # A merge counts only when confirmed; anything else is finished on the writer's behalf.
        assert content == (EMPTY if kind is WriterKind.BRANCH_MERGE else FULL)

    again = repository_at(root)
    assert stored(again, branch) == content
    assert Recovery(again).log.rows() == audit
    if content == EMPTY:
        write_both(again, branch)
        assert stored(again, branch) == FULL
        assert_consistent(again, branch)


RECOVERY_POINTS = [name for name in failpoints.FAILPOINTS if name.startswith("recovery.")]


@pytest.mark.parametrize("crash", ["write.after_first_table", "write.phase_b_done"])
@pytest.mark.parametrize("point", RECOVERY_POINTS)
def test_a_recovery_that_dies_itself_is_finished_by_the_next_one(
    root: str, crash: str, point: str
) -> None:
    first = repository_at(root)
    job = append_job(first, {"node:Person": people("ann"), "node:City": cities("kiel")})
    failpoints.arm(crash)
    with pytest.raises(FailpointError):
        committer(first).commit(job)
    failpoints.disarm()
    failpoints.arm(point)
    with suppress(FailpointError):
        repository_at(root)
    failpoints.disarm()

    reopened = repository_at(root)
    assert stored(reopened) == (EMPTY if crash == "write.after_first_table" else FULL)
    assert_consistent(reopened)
    audit = Recovery(reopened).log.rows()
    assert [row.operation_id for row in audit] == [job.operation_id]
    assert (
        len(
            {
                commit.graph_commit_id
                for commit in reopened.reader.latest(MAIN_INCARNATION).commits()
            }
        )
        == 2
    )


def test_a_live_process_heals_at_its_next_turn_without_reopening(root: str) -> None:
    repository = repository_at(root)
    failpoints.arm("write.after_first_table")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    # The turn heals first, which moves the tables: whoever meets that prepares again.
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        write_both(repository)
    assert caught.value.is_only_maintenance
    assert_consistent(repository)
    write_both(repository)
    assert stored(repository) == FULL
    commits = repository.reader.latest(MAIN_INCARNATION).commits()
    assert [commit.operation for commit in commits] == ["load", "recovery", "init"]
    assert commits[1].actor_id == RECOVERY_ACTOR


def test_a_writer_that_was_presumed_dead_cannot_publish_and_is_put_back(root: str) -> None:
    paused = repository_at(root)
    job = append_job(paused, {"node:Person": people("late"), "node:City": cities("late")})

    def recovered_by_another() -> None:
        failpoints.disarm()
        # The other process takes the turn over: here the record is settled directly.
        other = repository_at(root, OpenMode.READ_ONLY)
        Recovery(other).sweep_branch(BranchName("main"))

    failpoints.arm("write.sidecar_written", recovered_by_another)
    with pytest.raises((CommitSettledError, StaleBaseError)):
        committer(paused).commit(job)
    reopened = repository_at(root)
    assert stored(reopened) == EMPTY
    write_both(reopened)
    assert stored(reopened) == FULL
    assert_consistent(reopened)


def test_a_head_that_nobody_explains_needs_repair(root: str) -> None:
    repository = repository_at(root)
    entry = repository.reader.latest(MAIN_INCARNATION).entries["node:Person"]
    datasets = repository.store.datasets
    outside = datasets.stage_append(datasets.open(entry.location).at, people("outside"))
    datasets.commit_staged(outside)
    with pytest.raises(DriftNeedsRepairError) as caught:
        write_both(repository)
    assert (caught.value.table_key, caught.value.published, caught.value.head) == (
        "node:Person",
        1,
        2,
    )
    assert stored(repository) == EMPTY


def test_a_record_of_a_deleted_branch_is_discarded(root: str) -> None:
    graph = Graph.open(root, durability="process")
    graph.branch_create("draft")
    failpoints.arm("write.after_first_table")
    with pytest.raises(FailpointError):
        write_both(graph._repository, "draft")
    failpoints.disarm()
    sidecar_path = graph._repository.store.objects.list(FOLDER)[0].path
    record = graph._repository.store.objects.get(sidecar_path).data
    graph.branch_delete("draft")
    graph._repository.store.objects.put(sidecar_path, record)
    reopened = repository_at(root)
    kinds = [row.recovery_kind for row in Recovery(reopened).log.rows()]
    assert RecoveryKind.ORPHANED_BRANCH_DISCARDED in kinds
    assert reopened.store.objects.list(FOLDER) == ()


def test_a_head_below_the_published_version_stops_that_branch_only(root: str) -> None:
    graph = Graph.open(root, durability="process")
    graph.branch_create("other")
    repository = graph._repository
    failpoints.arm("write.sidecar_written")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    path = repository.store.objects.list(FOLDER)[0].path
    entry = repository.reader.latest(MAIN_INCARNATION).entries["node:Person"]
    lost = Path(root) / entry.location / "_versions"
    for file in lost.iterdir():
        file.unlink()
    repository.store.datasets.forget(entry.location)
    with pytest.raises(Exception, match=entry.location):
        repository_at(root)
    assert repository.store.objects.get(path).data
    assert Graph.open(root, mode=OpenMode.READ_ONLY).branch_list() == ["main", "other"]


def test_status_says_what_a_sweep_would_do_and_does_nothing(root: str) -> None:
    repository = repository_at(root)
    failpoints.arm("write.phase_b_done")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    before = [(info.path, info.tag) for info in repository.store.objects.list(FOLDER)]
    ((sidecar, verdict, _),) = Recovery(repository).status()
    assert isinstance(sidecar, Sidecar)
    assert verdict is Verdict.ROLL_FORWARD
    assert [(i.path, i.tag) for i in repository.store.objects.list(FOLDER)] == before
    assert stored(repository) == EMPTY


def test_an_unreadable_record_blocks_its_branch_and_can_be_set_aside(root: str) -> None:
    repository = repository_at(root)
    repository.store.objects.put(f"{FOLDER}/01BAD.json", b'{"schema_version": 9, "branch": "main"}')
    with pytest.raises(UnreadableSidecarError):
        write_both(repository)
    assert Graph.open(root, mode=OpenMode.READ_ONLY).branch_list() == ["main"]
    aside = Recovery(repository).quarantine("01BAD")
    assert repository.store.objects.get(aside).data.startswith(b'{"schema_version": 9')
    write_both(repository)
    assert stored(repository) == FULL


def test_an_unreadable_record_of_another_branch_blocks_nobody_else(root: str) -> None:
    repository = repository_at(root)
    repository.store.objects.put(f"{FOLDER}/01BAD.json", b'{"schema_version": 9, "branch": "x"}')
    write_both(repository)
    assert stored(repository) == FULL


def test_every_declared_failpoint_is_used_by_these_tests() -> None:
    # The others are armed by `tests/faults/test_writer_faults.py` and `test_strays.py`.
    others = {p for p in failpoints.FAILPOINTS if p.startswith(("schema_apply.", "strays."))}
    assert set(WRITE_POINTS) | set(RECOVERY_POINTS) == set(failpoints.FAILPOINTS) - others


def test_the_stop_names_the_operation_and_the_way_out() -> None:
    error = RecoveryStoppedError("01OP", "main", ("node:Person",))
    assert error.hint is not None
    assert "omnigraph recovery quarantine 01OP --confirm" in error.hint
