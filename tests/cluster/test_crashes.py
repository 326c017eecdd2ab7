"""Every command that writes, with a fault at each of its effects; then a plain run converges.

Effects are writes to stored objects and operations on graphs, numbered together. After a fault the
ledger says only what is so. A dead run leaves its lock, which an operator removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.cluster.addresses import Kind
from omnigraph.cluster.commands.apply import apply
from omnigraph.cluster.commands.frame import Report, Workplace
from omnigraph.cluster.compare.composites import composite_problems
from omnigraph.cluster.compare.diff import diff
from omnigraph.cluster.diagnostics import has_errors
from omnigraph.cluster.stored.approvals import read_approvals
from omnigraph.cluster.stored.catalog import has_blob, read_blob
from omnigraph.cluster.stored.intents import read_intents
from omnigraph.failpoints import OF_A_CLUSTER, FailpointError
from support.clusters import (
    NEXT_QUERY,
    NEXT_SCHEMA,
    POLICY,
    QUERY,
    SCHEMA,
    Folder,
    changes_of,
    codes,
    faulty_work,
    succeeded,
)
from support.fault_plan import FaultMode, FaultPlan, SimulatedDeath, sweep
from support.places import Place
from support.s3 import S3Server
from support.sweeps import Archive

QUICK = FaultMode.DIE_AFTER
OTHERS = [mode for mode in FaultMode if mode not in (QUICK, FaultMode.DELAY)]
MODES = [QUICK, *(pytest.param(mode, marks=pytest.mark.slow) for mode in OTHERS)]


@dataclass(frozen=True)
class Scene:
    """A cluster before a command, put back as often as a sweep needs it."""

    folder: Folder
    archive: Archive

    def restored(self) -> Folder:
        self.archive.restored()
        return self.folder


def before(folder: Folder) -> None:
    """Apply three graphs, and give consent to the deletion of one."""
    folder.write(
        {"a": (SCHEMA, {"by_doi": QUERY}), "c": (SCHEMA, {"by_doi": QUERY})},
        policies={"readers": (POLICY, ("a",))},
    )
    succeeded(folder.import_state())
    succeeded(folder.apply())
    changed(folder)
    succeeded(folder.approve("graph.c"))


def changed(folder: Folder) -> None:
    """Declare a new graph, another schema, query, policy and provider, and one graph less."""
    folder.write(
        {
            "a": (NEXT_SCHEMA, {"by_doi": NEXT_QUERY, "again": QUERY.replace("by_doi", "again")}),
            "b": (SCHEMA, {"by_doi": QUERY}),
        },
        policies={"readers": (POLICY, ("a", "b"))},
        mock_model="m",
    )


def scene_of(folder: Folder, root: str) -> Scene:
    before(folder)
    place = Place(root)
    objects = place.store().objects
    return Scene(
        folder, Archive(place, {info.path: objects.get(info.path).data for info in objects.list()})
    )


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    path = tmp_path_factory.mktemp("cluster") / "here"
    return scene_of(Folder(path), str(path))


def check_truthful(folder: Folder) -> None:
    """The ledger says only what is so, but for graphs that an intent names."""
    work, ledger = folder.work(), folder.ledger()
    assert composite_problems(ledger) == ()
    open_cases = {intent.graph_id for intent in read_intents(work.root).records.values()}
    for address, entry in ledger.entries.items():
        if address.kind is Kind.SCHEMA and address.name not in open_cases:
            assert work.graphs.look(address.name).has_schema(entry.digest), address
        if has_blob(address):
            assert read_blob(work.root, address, entry.digest).is_present, address


def check_converged(folder: Folder) -> None:
    """A plain run leads to what is declared, and leaves nothing behind."""
    folder.unlock()
    succeeded(folder.apply())
    work, ledger, desired = folder.work(), folder.ledger(), folder.desired()
    assert diff(desired, ledger) == ()
    assert ledger.config_digest == desired.config_digest
    assert read_intents(work.root).records == {}
    assert all(found.consumed_at for found in read_approvals(work.root).records.values())
    assert {status.status for status in ledger.resource_statuses.values()} == {"applied"}
    assert work.graphs.look("a").source == NEXT_SCHEMA
    assert work.graphs.look("b").source == SCHEMA
    assert work.graphs.look("c").state == "absent"
    check_truthful(folder)
    written = folder.ledger().state_revision
    assert changes_of(succeeded(folder.apply())) == {}
    assert folder.ledger().state_revision == written


def run_faulty(folder: Folder, command: str, plan: FaultPlan) -> Report | None:
    work = faulty_work(folder.work(), plan)
    with suppress(SimulatedDeath):
        return commands(work)[command](folder)
    return None


def commands(work: Workplace) -> dict[str, Callable[[Folder], Report]]:
    return {
        "apply": lambda folder: folder.apply(work),
        "refresh": lambda folder: folder.refresh(work),
        "approve": lambda folder: folder.approve("graph.c", work),
    }


@pytest.mark.parametrize("command", ["apply", "refresh", "approve"])
@pytest.mark.parametrize("mode", MODES)
def test_after_a_fault_anywhere_a_plain_run_converges(
    mode: FaultMode, command: str, on_disk: Scene
) -> None:
    count = 0
    for plan in sweep(mode):
        folder = on_disk.restored()
        report = run_faulty(folder, command, plan)
        if plan.has_fired:
            count += 1
            check_truthful(folder)
            if report is not None and mode is FaultMode.FAIL_BEFORE:
                assert report.diagnostics, "a fault that nobody is told"
        check_converged(folder)
    assert count >= {"apply": 15, "refresh": 3, "approve": 3}[command]


@pytest.mark.parametrize("mode", MODES)
def test_after_a_fault_in_import_a_plain_import_and_run_converge(
    mode: FaultMode, on_disk: Scene
) -> None:
    count = 0
    for plan in sweep(mode):
        folder = on_disk.restored()
        (folder.path / "__cluster/state.json").unlink()
        work = faulty_work(folder.work(), plan)
        with suppress(SimulatedDeath):
            folder.import_state(work)
        count += plan.has_fired
        folder.unlock()
        if not (folder.path / "__cluster/state.json").exists():
            succeeded(folder.import_state())
        check_truthful(folder)
        succeeded(folder.apply())
        assert diff(folder.desired(), folder.ledger()) == ()
    assert count >= 3


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.DIE_AFTER, FaultMode.FAIL_AFTER])
def test_a_fault_in_the_recovery_changes_nothing_about_it(mode: FaultMode, on_disk: Scene) -> None:
    first = FaultPlan(at=9, mode=FaultMode.DIE_AFTER)
    run_faulty(on_disk.restored(), "apply", first)
    assert first.has_fired
    left = Archive(on_disk.archive.place, files_of(on_disk.archive.place))
    for plan in sweep(mode):
        folder = on_disk.folder
        left.restored()
        folder.unlock()
        run_faulty(folder, "apply", plan)
        check_truthful(folder)
        check_converged(folder)


def files_of(place: Place) -> dict[str, bytes]:
    objects = place.store().objects
    return {info.path: objects.get(info.path).data for info in objects.list()}


@pytest.mark.slow
@pytest.mark.parametrize("mode", [QUICK, *OTHERS])
def test_after_a_fault_anywhere_a_plain_run_converges_on_s3(
    mode: FaultMode, tmp_path: Path, bucket: S3Server
) -> None:
    uri = f"s3://{bucket.bucket}/cluster-{mode.name.lower()}"
    scene = scene_of(Folder(tmp_path / "here", uri), uri)
    for plan in sweep(mode):
        folder = scene.restored()
        run_faulty(folder, "apply", plan)
        check_truthful(folder)
        check_converged(folder)


def test_one_death_on_s3(tmp_path: Path, bucket: S3Server) -> None:
    uri = f"s3://{bucket.bucket}/cluster-once"
    folder = Folder(tmp_path / "here", uri)
    before(folder)
    plan = FaultPlan(at=6, mode=FaultMode.DIE_AFTER)
    run_faulty(folder, "apply", plan)
    assert plan.has_fired
    check_truthful(folder)
    check_converged(folder)
    here = {path.name for path in (tmp_path / "here").iterdir()}
    assert not here & {"__cluster", "graphs"}, "nothing is written beside the files"


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("point", OF_A_CLUSTER)
def test_after_a_run_that_ends_at_a_named_point_a_plain_run_converges(
    point: str, on_disk: Scene
) -> None:
    folder = on_disk.restored()
    command = point.removeprefix("cluster_").partition(".")[0]
    if command == "import":
        (folder.path / "__cluster/state.json").unlink()
    failpoints.arm(point)
    calls: dict[str, Callable[[], Report]] = {
        "apply": folder.apply,
        "refresh": folder.refresh,
        "import": folder.import_state,
        "approve": lambda: folder.approve("graph.c"),
    }
    with pytest.raises(FailpointError):
        calls[command]()
    failpoints.disarm()
    if command == "import" and not (folder.path / "__cluster/state.json").exists():
        succeeded(folder.import_state())
    check_truthful(folder)
    if command == "import":
        succeeded(folder.apply())
        assert diff(folder.desired(), folder.ledger()) == ()
    else:
        check_converged(folder)


def test_a_schema_whose_file_changes_during_the_run_is_not_applied(on_disk: Scene) -> None:
    folder = on_disk.restored()
    desired = folder.desired()
    (folder.path / "b.pg").write_text(NEXT_SCHEMA)
    report = apply(desired, folder.work())
    assert has_errors(report.diagnostics)
    assert codes(report)[0] == "resource_content_changed"
    assert folder.work().graphs.look("b").state == "absent"
    assert read_intents(folder.work().root).records == {}
    check_truthful(folder)
    changed(folder)
    check_converged(folder)


# -- two commands at once -------------------------------------------------------------------------


def test_a_run_whose_lock_was_removed_deletes_nothing(on_disk: Scene) -> None:
    """It may have slept, and the graph of this id may be another one by now."""
    folder = on_disk.restored()
    failpoints.arm("cluster_apply.after_payloads", folder.unlock)
    report = folder.apply()
    failpoints.disarm()
    assert "state_lock_lost" in codes(report)
    assert changes_of(report)["graph.c"] == "delete blocked graph_delete_failed"
    assert folder.work().graphs.look("c").is_open
    assert succeeded(folder.apply()).members["converged"]


@pytest.mark.parametrize(
    "point", ["cluster_apply.before_graph_create", "cluster_apply.after_payloads"]
)
def test_a_run_that_another_one_has_overtaken_deletes_nothing(on_disk: Scene, point: str) -> None:
    folder = on_disk.restored()

    def overtake() -> None:
        failpoints.disarm()
        folder.unlock()
        succeeded(folder.refresh())
        ran.append(point)

    ran: list[str] = []
    failpoints.arm(point, overtake)
    report = folder.apply()
    assert ran == [point]
    assert {"state_lock_lost", "state_cas_mismatch"} & set(codes(report))
    assert folder.work().graphs.look("c").is_open
    assert not report.members["state_written"]
    check_truthful(folder)
    assert succeeded(folder.apply()).members["converged"]


def test_without_a_lock_the_ledger_tells_that_another_run_has_been_there(on_disk: Scene) -> None:
    folder = on_disk.restored()
    desired = replace(folder.desired(), is_locked=False)

    def overtake() -> None:
        failpoints.disarm()
        succeeded(folder.refresh())

    failpoints.arm("cluster_apply.after_payloads", overtake)
    report = apply(desired, folder.work(), actor="ann")
    assert codes(report).count("state_cas_mismatch") >= 1
    assert folder.work().graphs.look("c").is_open


def test_a_deletion_does_not_follow_a_link(on_disk: Scene, tmp_path: Path) -> None:
    folder = on_disk.restored()
    root, elsewhere = folder.path / "graphs/c.omni", tmp_path / "elsewhere"
    root.rename(elsewhere)
    root.symlink_to(elsewhere, target_is_directory=True)
    kept = sorted(elsewhere.rglob("*"))
    report = folder.apply()
    root.unlink()
    assert "graph_delete_failed" in codes(report)
    assert any("symbolic link" in found.message for found in report.diagnostics)
    assert read_intents(folder.work().root).records == {}
    assert sorted(elsewhere.rglob("*")) == kept


def test_a_deletion_spares_graphs_whose_id_begins_alike(on_disk: Scene) -> None:
    folder = on_disk.restored()
    for name in ("c.omni2", "c.omni-old", "c"):
        shutil.copytree(folder.path / "graphs/c.omni", folder.path / "graphs" / name)
    succeeded(folder.apply())
    found = {path.name for path in (folder.path / "graphs").iterdir()}
    for name in ("c.omni2", "c.omni-old", "c"):
        shutil.rmtree(folder.path / "graphs" / name)
    assert found == {"a.omni", "b.omni", "c", "c.omni-old", "c.omni2"}
