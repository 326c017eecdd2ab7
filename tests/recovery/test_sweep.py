"""A write that dies anywhere is afterwards wholly there or wholly absent."""

from __future__ import annotations

import shutil
from contextlib import nullcontext, suppress
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import FailpointError
from omnigraph.graph import Graph
from omnigraph.maintenance.optimize import UncleanRecoveryError
from omnigraph.manifest import Entry, OpenMode, Repository
from omnigraph.manifest.errors import CommitSettledError, ExpectedVersionMismatchError
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.locks.branch_lock import BranchLockTimeoutError
from omnigraph.names import BranchName
from omnigraph.recovery import (
    Intent,
    Recovery,
    RecoveryKind,
    TableClass,
    Verdict,
    WriterKind,
)
from omnigraph.recovery.intent import FOLDER, UnreadableIntentError
from omnigraph.recovery.put_back import RECOVERY_ACTOR
from omnigraph.recovery.settle import RecoveryStoppedError
from omnigraph.recovery.sweep import IntentNotFoundError
from omnigraph.store.errors import StaleBaseError
from omnigraph.write.commit.late_commits import DriftNeedsRepairError
from support.jobs import append_job, committer
from support.json_damage import exchanged, places
from support.places import repository_of
from support.writer import people

pytestmark = pytest.mark.usefixtures("disarmed")

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
"""
WRITE_POINTS = failpoints.OF_A_WRITE
BEFORE_RECORD = {"write.post_stage", "write.turn_taken"}
COMPLETE = {"recovery.sidecar_confirm", "graph_publish.before_commit_append"}
PUBLISHED = {"graph_publish.after_commit_append", "write.sidecar_deleted"}


@pytest.fixture
def root(tmp_path: Path) -> str:
    place = str(tmp_path / "graph")
    Graph.init(place, SCHEMA, durability="process").close()
    return place


def cities(*names: str) -> pa.Table:
    return pa.table({"id": list(names), "name": list(names)})


def repository_at(root: str, mode: OpenMode = OpenMode.READ_WRITE) -> Repository:
    return repository_of(Graph.open(root, mode=mode, durability="process"))


def write_both(repository: Repository, branch: str = "main") -> None:
    job = append_job(
        repository, {"node:Person": people("ann"), "node:City": cities("kiel")}, branch=branch
    )
    committer(repository).commit(job)


def write_city(repository: Repository, branch: str = "main") -> None:
    job = append_job(repository, {"node:City": cities("kiel")}, branch=branch)
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
        if kind is WriterKind.BRANCH_MERGE or point != "recovery.sidecar_confirm"
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
    if point in PUBLISHED or point in COMPLETE:
        assert content == FULL
    if point == "write.post_phase_b_pre_manifest_commit":
        # A merge counts only when confirmed; anything else is finished on the writer's behalf.
        assert content == (EMPTY if kind is WriterKind.BRANCH_MERGE else FULL)

    again = repository_at(root)
    assert stored(again, branch) == content
    assert Recovery(again).log.rows() == audit
    if content == EMPTY:
        write_both(again, branch)
        assert stored(again, branch) == FULL
        assert_consistent(again, branch)


RECOVERY_POINTS = failpoints.OF_A_RECOVERY


@pytest.mark.parametrize(
    "crash", ["write.after_first_table", "write.post_phase_b_pre_manifest_commit"]
)
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


def test_a_live_process_heals_at_its_next_lock_without_reopening(root: str) -> None:
    repository = repository_at(root)
    failpoints.arm("write.after_first_table")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    # Taking the lock sweeps first, which moves the tables: the writer prepares again.
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
        # The other process takes the lock over: here the record is settled directly.
        other = repository_at(root, OpenMode.READ_ONLY)
        Recovery(other).sweep_branch(BranchName("main"))

    failpoints.arm("recovery.sidecar_write", recovered_by_another)
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


def test_an_intent_that_was_written_after_the_sweep_is_no_drift(root: str) -> None:
    repository = repository_at(root)
    main = BranchName("main")
    slow = append_job(repository, {"node:Person": people("slow")})
    late = append_job(repository, {"node:Person": people("late"), "node:City": cities("late")})
    with repository.branch_locks.take(main, operation_id=slow.operation_id) as lock:
        # The writer that had the lock before has not noticed: it writes its intent, and tables.
        failpoints.arm("write.after_first_table")
        with pytest.raises(FailpointError):
            committer(repository).commit_locked(late, lock)
        failpoints.disarm()
        with pytest.raises(ExpectedVersionMismatchError):
            committer(repository).commit_locked(slow, lock)
    assert Recovery(repository).pending() == []
    assert stored(repository) == EMPTY
    write_both(repository)
    assert stored(repository) == FULL
    assert_consistent(repository)


def test_a_record_of_a_deleted_branch_is_discarded(root: str) -> None:
    graph = Graph.open(root, durability="process")
    graph.branch_create("draft")
    failpoints.arm("write.after_first_table")
    with pytest.raises(FailpointError):
        write_both(repository_of(graph), "draft")
    failpoints.disarm()
    intent_path = repository_of(graph).store.objects.list(FOLDER)[0].path
    record = repository_of(graph).store.objects.get(intent_path).data
    graph.branch_delete("draft")
    repository_of(graph).store.objects.put(intent_path, record)
    reopened = repository_at(root)
    kinds = [row.recovery_kind for row in Recovery(reopened).log.rows()]
    assert RecoveryKind.ORPHANED_BRANCH_DISCARDED in kinds
    assert reopened.store.objects.list(FOLDER) == ()


def test_a_published_table_that_is_gone_stops_its_branch(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = Graph.open(root, durability="process")
    graph.branch_create("other")
    repository = repository_of(graph)
    failpoints.arm("recovery.sidecar_write")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    path = repository.store.objects.list(FOLDER)[0].path
    entry = repository.reader.latest(MAIN_INCARNATION).entries["node:Person"]
    lost = Path(root) / entry.location / "_versions"
    for file in lost.iterdir():
        file.unlink()
    repository.store.datasets.forget(entry.location)
    reopened = repository_at(root)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    with pytest.raises(RecoveryStoppedError) as caught:
        write_city(reopened)
    assert (caught.value.branch, caught.value.tables) == ("main", ("node:Person",))
    assert repository.store.objects.get(path).data
    assert Graph.open(root, mode=OpenMode.READ_ONLY).branch_list() == ["main", "other"]
    Graph.open(root, durability="process").branch_delete("other")
    ((_, branch, _, verdict, classes, _),) = Recovery(reopened).status()
    assert (branch, verdict) == ("main", Verdict.STOP)
    assert TableClass.INVARIANT_VIOLATION in classes


def lose_newest_version(root: str, entry: Entry) -> None:
    """Take the published version of a table away, and leave the one below."""
    assert entry.table_branch is not None
    versions = Path(root) / entry.location / "tree" / entry.table_branch / "_versions"
    min(versions.glob("*.manifest")).unlink()


@pytest.mark.parametrize("cause", ["version lost", "newer release", "cut off"])
def test_what_blocks_one_branch_leaves_the_others_writable_through_every_handle(
    root: str, cause: str
) -> None:
    graph = Graph.open(root, durability="process")
    graph.branch_create("draft")
    write_both(repository_of(graph), "draft")
    repository = repository_of(graph)
    failpoints.arm("recovery.sidecar_write")
    with pytest.raises(FailpointError):
        write_both(repository, "draft")
    failpoints.disarm()
    path = repository.store.objects.list(FOLDER)[0].path
    record = repository.store.objects.get(path).data
    if cause == "version lost":
        state = repository.reader.latest(repository.branches.resolve(BranchName("draft")))
        lose_newest_version(root, state.entries["node:Person"])
    elif cause == "newer release":
        record = record.replace(b'"schema_version": 2', b'"schema_version": 3')
    else:
        record = record[: len(record) // 2]
    repository.store.objects.put(path, record)

    reopened = Graph.open(root, durability="process")
    write_both(repository_of(reopened))
    reopened.refresh()
    assert stored(repository_of(reopened)) == FULL
    reopened.ensure_indices()
    for refused in (reopened, Graph.open(root, branch="draft", durability="process")):
        with pytest.raises((RecoveryStoppedError, UnreadableIntentError)) as caught:
            write_city(repository_of(refused), "draft")
        assert caught.value.branch == "draft"
        operation_id = Path(path).stem
        assert f"omnigraph recovery quarantine {operation_id} --confirm" in str(caught.value.hint)
    with pytest.raises(UncleanRecoveryError, match="requires a clean recovery state"):
        reopened.optimize()
    (pending,) = reopened.recovery_status()
    assert (pending.operation_id, pending.branch) == (operation_id, "draft")
    assert pending.verdict is Verdict.STOP
    assert (pending.problem is None) == (cause == "version lost")
    assert repository.store.objects.get(path).data == record, "the file stays"

    reopened.recovery_quarantine(operation_id)
    assert reopened.recovery_status() == []
    reopened.optimize()
    if cause != "version lost":
        graph.mutate('query q() { insert City { name: "rome" } }', branch="draft")


def test_a_record_that_names_no_branch_blocks_the_graph_but_not_its_readers(root: str) -> None:
    repository = repository_at(root)
    repository.store.objects.put(f"{FOLDER}/01BAD.json", b"\0\0")
    with pytest.raises(UnreadableIntentError):
        repository_at(root)
    with pytest.raises(UnreadableIntentError):
        write_both(repository)
    reader = Graph.open(root, mode=OpenMode.READ_ONLY)
    assert [(p.operation_id, p.branch) for p in reader.recovery_status()] == [("01BAD", None)]
    reader.recovery_quarantine("01BAD")
    write_both(repository_at(root))
    assert stored(repository) == FULL


def outcomes(repository: Repository) -> list[tuple[str, int, int]]:
    (row,) = Recovery(repository).log.rows()
    return [(o.table_key, o.from_version, o.to_version) for o in row.per_table_outcomes]


ROLLED_BACK = [("node:City", 1, 1), ("node:Person", 2, 1)]
ROLLED_FORWARD = [("node:City", 1, 2), ("node:Person", 1, 2)]


@pytest.mark.parametrize(
    ("crash", "recovery_crash", "expected"),
    [
        ("write.after_first_table", None, ROLLED_BACK),
        ("write.after_first_table", "recovery.after_void", ROLLED_BACK),
        ("write.after_first_table", "recovery.record_audit", ROLLED_BACK),
        ("write.post_phase_b_pre_manifest_commit", None, ROLLED_FORWARD),
        ("write.post_phase_b_pre_manifest_commit", "recovery.record_audit", ROLLED_FORWARD),
        ("graph_publish.after_commit_append", None, ROLLED_FORWARD),
    ],
)
def test_the_audit_says_where_tables_were_found_and_which_version_is_logically_left(
    root: str, crash: str, recovery_crash: str | None, expected: list[tuple[str, int, int]]
) -> None:
    failpoints.arm(crash)
    with pytest.raises(FailpointError):
        write_both(repository_at(root))
    failpoints.disarm()
    if recovery_crash is not None:
        failpoints.arm(recovery_crash)
        with pytest.raises(FailpointError):
            repository_at(root)
        failpoints.disarm()
    assert sorted(outcomes(repository_at(root))) == expected


def first_version(data: bytes) -> bytes:
    """Return a record as the first version wrote it."""
    form = orjson.loads(data) | {"schema_version": 1}
    for name in ("owner_id", "branch_incarnation", "schema_hash", "reads", "commit"):
        del form[name]
    for name in ("recovery_commit_id", "restore_transaction_ids"):
        del form[name]
    kept = ("table_key", "table_path", "table_branch", "expected_version", "post_commit_pin")
    form["tables"] = [
        {name: table[name] for name in kept if name in table} for table in form["tables"]
    ]
    return orjson.dumps(form)


@pytest.mark.parametrize("branch", ["main", "draft"])
@pytest.mark.parametrize(
    ("crash", "kind"),
    [
        ("recovery.sidecar_write", RecoveryKind.ROLLED_BACK),
        ("write.after_first_table", RecoveryKind.ROLLED_BACK),
        ("write.post_phase_b_pre_manifest_commit", RecoveryKind.ROLLED_FORWARD),
    ],
)
def test_a_record_of_the_first_version_is_settled_as_it_always_was(
    root: str, branch: str, crash: str, kind: RecoveryKind
) -> None:
    graph = Graph.open(root, durability="process")
    if branch != "main":
        graph.branch_create(branch)
        # The branch owns its tables: the first version knows no fork of its own.
        for name in ("Person", "City"):
            graph.mutate(f'query q() {{ insert {name} {{ name: "x" }} }}', branch=branch)
            graph.mutate(f'query q() {{ delete {name} where name = "x" }}', branch=branch)
    repository = repository_of(graph)
    failpoints.arm(crash)
    with pytest.raises(FailpointError):
        write_both(repository, branch)
    failpoints.disarm()
    (info,) = repository.store.objects.list(FOLDER)
    repository.store.objects.put(
        info.path, first_version(repository.store.objects.get(info.path).data)
    )
    reopened = repository_at(root)
    is_forward = kind is RecoveryKind.ROLLED_FORWARD
    assert stored(reopened, branch) == (FULL if is_forward else EMPTY)
    assert_consistent(reopened, branch)
    (row,) = Recovery(reopened).log.rows()
    assert row.recovery_kind is kind
    state = reopened.reader.latest(reopened.branches.resolve(BranchName.parse(branch)))
    assert {entry.row_count for entry in state.entries.values()} == {int(is_forward)}
    assert len(str(row.graph_commit_id)) == 26
    commit = state.commit(str(row.graph_commit_id))
    assert commit is not None
    assert commit.actor_id == ("ada" if is_forward else RECOVERY_ACTOR)
    if not is_forward:
        write_both(reopened, branch)
    assert stored(repository_at(root), branch) == FULL


def test_status_says_what_a_sweep_would_do_and_does_nothing(root: str) -> None:
    repository = repository_at(root)
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    before = [(info.path, info.tag) for info in repository.store.objects.list(FOLDER)]
    (pending,) = Recovery(repository).status()
    assert isinstance(pending.intent, Intent)
    assert pending.verdict is Verdict.ROLL_FORWARD
    assert [(i.path, i.tag) for i in repository.store.objects.list(FOLDER)] == before
    assert stored(repository) == EMPTY


def test_an_unreadable_record_blocks_its_branch_and_can_be_set_aside(root: str) -> None:
    repository = repository_at(root)
    repository.store.objects.put(f"{FOLDER}/01BAD.json", b'{"schema_version": 9, "branch": "main"}')
    with pytest.raises(UnreadableIntentError):
        write_both(repository)
    assert Graph.open(root, mode=OpenMode.READ_ONLY).branch_list() == ["main"]
    aside = Recovery(repository).quarantine("01BAD")
    assert repository.store.objects.get(aside).data.startswith(b'{"schema_version": 9')
    write_both(repository)
    assert stored(repository) == FULL


def test_the_record_of_a_writer_at_work_is_not_set_aside(root: str) -> None:
    repository = repository_at(root)
    reader = Graph.open(root, mode=OpenMode.READ_ONLY)
    refused: list[BaseException] = []

    def set_aside() -> None:
        (pending,) = reader.recovery_status()
        with pytest.raises(BranchLockTimeoutError) as caught:
            reader.recovery_quarantine(pending.operation_id)
        refused.append(caught.value)

    failpoints.arm("write.after_first_table", set_aside)
    write_both(repository)
    assert len(refused) == 1
    assert stored(repository) == FULL
    with pytest.raises(IntentNotFoundError, match="'01NONE' is pending"):
        reader.recovery_quarantine("01NONE")


def test_an_unreadable_record_of_another_branch_blocks_nobody_else(root: str) -> None:
    repository = repository_at(root)
    repository.store.objects.put(f"{FOLDER}/01BAD.json", b'{"schema_version": 9, "branch": "x"}')
    write_both(repository)
    assert stored(repository) == FULL


SHAPES: list[object] = [
    [],
    [1],
    3,
    "x",
    None,
    {},
    {"schema_version": 2},
    {"schema_version": 2, "branch": "main"},
    {"schema_version": 1, "branch": "main", "operation_id": "01BAD"},
    {"schema_version": 2, "branch": ["main"], "operation_id": "01BAD"},
    {"schema_version": 2, "branch": "../x", "operation_id": "01BAD", "tables": []},
]


@pytest.mark.parametrize("shape", SHAPES, ids=orjson.dumps)
def test_a_record_of_another_shape_is_unreadable_as_one_that_is_no_json(
    root: str, shape: object
) -> None:
    repository = repository_at(root)
    repository.store.objects.put(f"{FOLDER}/01BAD.json", orjson.dumps(shape))
    names_branch = isinstance(shape, dict) and shape.get("branch") == "main"
    (pending,) = Recovery(repository).status()
    assert (pending.operation_id, pending.verdict) == ("01BAD", Verdict.STOP)
    if not names_branch:
        with pytest.raises(UnreadableIntentError, match=r"__recovery/01BAD\.json"):
            Graph.open(root)
    with pytest.raises(UnreadableIntentError, match=r"__recovery/01BAD\.json"):
        write_both(repository)
    assert Graph.open(root, mode=OpenMode.READ_ONLY).branch_list() == ["main"]
    Recovery(repository).quarantine("01BAD")
    write_both(repository)
    assert stored(repository) == FULL


@pytest.mark.slow
def test_whatever_one_member_of_a_record_becomes_opening_says_which_record_it_is(
    root: str, tmp_path: Path
) -> None:
    repository = repository_at(root)
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    with pytest.raises(FailpointError):
        write_both(repository)
    failpoints.disarm()
    (info,) = repository.store.objects.list(FOLDER)
    operation_id = info.path.partition("/")[2].removesuffix(".json")
    form = orjson.loads(repository.store.objects.get(info.path).data)
    nameless: list[tuple[object, ...]] = []
    for number, place in enumerate(places(form)):
        for lock, wrong in enumerate((None, 3, "x", "../x", [], {})):
            here = tmp_path / f"{number}-{lock}"
            shutil.copytree(root, here)
            (here / info.path).write_bytes(orjson.dumps(exchanged(form, place, wrong)))
            try:
                Graph.open(here, durability="process").refresh()
            except OmnigraphError as error:
                if operation_id not in str(error):
                    nameless.append((place, wrong, str(error)))
            shutil.rmtree(here)
    assert nameless == []


def test_every_declared_failpoint_is_used_by_these_tests() -> None:
    # The others are armed by `tests/faults/test_writer_faults.py` and `test_late_commits.py`.
    others = {p for p in failpoints.FAILPOINTS if p.startswith(("schema_apply.", "strays."))}
    assert set(WRITE_POINTS) | set(RECOVERY_POINTS) == set(failpoints.FAILPOINTS) - others


@pytest.mark.parametrize("kind", list(WriterKind))
def test_a_point_of_one_writer_lets_the_others_pass(root: str, kind: WriterKind) -> None:
    name = kind.name.lower()
    assert name in failpoints.WRITERS
    failpoints.arm(f"{name}.post_stage")
    for other in (WriterKind.MUTATION, WriterKind.LOAD):
        repository = repository_at(root)
        job = append_job(repository, {"node:City": cities(other.value)}, kind=other)
        with pytest.raises(FailpointError) if other is kind else nullcontext():
            committer(repository).commit(job)


def test_an_unknown_point_cannot_be_armed() -> None:
    for name in ("mutation.sidecar_write", "write.published", "merge.post_stage"):
        with pytest.raises(ValueError, match="unknown failpoint"):
            failpoints.arm(name)


def test_the_stop_names_the_operation_and_the_way_out() -> None:
    error = RecoveryStoppedError("01OP", "main", ("node:Person",))
    assert error.hint is not None
    assert "omnigraph recovery quarantine 01OP --confirm" in error.hint
