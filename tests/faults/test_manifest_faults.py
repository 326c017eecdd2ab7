"""A fault at every storage effect of the manifest's operations.

For effect 1, 2, 3 … until none fires: it fails before it happens, it happens and is reported as
failed, the process dies before or after it. Then the graph is opened again. Each operation must be
there wholly or not at all, history must be one chain, and the operation must succeed when it is
tried again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.manifest import (
    CommitDraft,
    ReadTarget,
    Repository,
    Requirements,
    Updates,
    init_repository,
)
from omnigraph.manifest.errors import GraphNotFoundError
from omnigraph.manifest.layout import COMMITS, MAIN_INCARNATION, MANIFEST
from omnigraph.manifest.repository import assemble
from omnigraph.names import BranchName
from omnigraph.schema import compile_schema
from support.faulty_store import FaultMode, FaultPlan, SimulatedDeath, faulty, sweep
from support.places import CITY, PERSON, Place, add, ids, repository_of
from support.writer import append, people

SMALL = "node Person {\n    name: String @key\n    age: I32?\n}\n"
PAIR = SMALL + SMALL.replace("Person", "City")


@dataclass(frozen=True)
class Operation:
    """Something that is done once, and how to see whether it has been."""

    name: str
    run: Callable[[Repository], object]
    is_done: Callable[[Graph], bool]


def publish(repository: Repository) -> object:
    return append(repository, {PERSON: people("new"), CITY: people("new")}, actor_id="eva")


def publish_on_branch(repository: Repository) -> object:
    return append(repository, {PERSON: people("new")}, branch="dev")


def create_branch(repository: Repository) -> object:
    source = repository.branches.resolve(BranchName("dev"))
    return repository.branches.create(BranchName("team/new"), source=source, operation_id="OP")


def delete_branch(repository: Repository) -> object:
    repository.branches.delete(BranchName("old"), bound=BranchName("main"), operation_id="OP")
    return None


def create_tag(repository: Repository) -> object:
    incarnation = repository.branches.resolve(BranchName("dev"))
    return repository.tags.create("new", repository.history.snapshot(incarnation))


def delete_tag(repository: Repository) -> object:
    repository.tags.delete("old")
    return None


OPERATIONS = [
    Operation("publish", publish, lambda g: "new" in ids(g.snapshot())),
    Operation(
        "publish on a branch",
        publish_on_branch,
        lambda g: "new" in ids(g.snapshot_of(ReadTarget.branch("dev"))),
    ),
    Operation("branch create", create_branch, lambda g: "team/new" in g.branch_list()),
    Operation("branch delete", delete_branch, lambda g: "old" not in g.branch_list()),
    Operation("tag create", create_tag, lambda g: "new" in [t.name for t in g.tag_list()]),
    Operation("tag delete", delete_tag, lambda g: "old" not in [t.name for t in g.tag_list()]),
]


def prepare(place: Place) -> None:
    graph = place.init(PAIR)
    add(graph, "ann")
    graph.branch_create("dev")
    graph.branch_create("old")
    add(graph, "bob", branch="old")
    graph.tag_create("old")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph that every step of a sweep gets a copy of."""
    place = Place(str(tmp_path_factory.mktemp("template") / "graph"))
    prepare(place)
    return Path(place.uri)


def copies(template: Path, target: Path) -> Iterator[Place]:
    for number in range(1_000):
        root = target / f"step{number}"
        shutil.copytree(template, root)
        yield Place(str(root))
        shutil.rmtree(root)


def attempt(place: Place, operation: Operation, plan: FaultPlan) -> OmnigraphError | None:
    """Run an operation on broken storage; return the error that the caller has seen, if any."""
    repository = assemble(faulty(place.store(), plan), SystemClock())
    with suppress(SimulatedDeath):
        try:
            operation.run(repository)
        except OmnigraphError as error:
            return error
    return None


def check_whole(graph: Graph) -> None:
    """Everything that is visible is whole, and history is one chain per branch."""
    for branch in graph.branch_list():
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
        for key, entry in snapshot.entries.items():
            assert snapshot.open(key).count() == entry.row_count
        commits = graph.list_commits(branch)
        parents = [commit.parent_commit_id for commit in commits]
        assert parents == [*(commit.graph_commit_id for commit in commits[1:]), None]
        assert commits[0].graph_commit_id == snapshot.commit_id
    for tag in graph.tag_list():
        assert ids(graph.snapshot_of(ReadTarget.tag(tag.name)))
    main = graph.snapshot_of(ReadTarget.branch("main"))
    assert ("new" in ids(main)) is ("new" in ids(main, CITY)), "half a commit"


def check_recorded(place: Place, graph: Graph) -> None:
    table = place.store().datasets.open(COMMITS).scan().read_all()
    recorded = sorted(table["graph_commit_id"].to_pylist())
    assert len(set(recorded)) == len(recorded)
    assert set(recorded) >= {commit.graph_commit_id for commit in graph.list_commits("main")}


def recover(repository: Repository) -> None:
    """Put tables back that a writer has moved and not published, as recovery does."""
    datasets = repository.store.datasets
    for incarnation in repository.branches.incarnations():
        state = repository.reader.latest(incarnation)
        for key, entry in state.entries.items():
            head = datasets.head_version(entry.location, branch=entry.table_branch)
            if entry.owner_branch != incarnation.text or head == entry.table_version:
                continue
            restored = datasets.restore(
                entry.location,
                branch=entry.table_branch,
                version=entry.table_version,
                uuid=str(uuid4()),
            )
            repository.publisher.publish(
                incarnation,
                draft=CommitDraft(repository.clock.ulid(), "recovery", None, 1),
                requirements=Requirements(written={key: entry}),
                updates=Updates(entries=(replace(entry, table_version=restored.version),)),
            )


MODES = [mode for mode in FaultMode if mode is not FaultMode.DELAY]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_an_operation_happens_wholly_or_not_at_all(
    template: Path, tmp_path: Path, operation: Operation, mode: FaultMode
) -> None:
    places = copies(template, tmp_path)
    done = []
    for plan in sweep(mode, effects_max=60):
        place = next(places)
        error = attempt(place, operation, plan)
        graph = place.open()
        check_whole(graph)
        check_recorded(place, graph)
        done.append(operation.is_done(graph))
        if error is None and mode in {FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER}:
            assert done[-1], f"said to be done and is not, after {plan.effects[-1]}"
        elif error is not None and done[-1]:
            assert isinstance(error, OutcomeUnknownError), f"refused and done: {error}"
        if not done[-1]:
            recover(repository_of(graph))
            operation.run(repository_of(graph))
            assert operation.is_done(place.open())
        check_whole(place.open())
    assert done[-1], "without a fault the operation succeeds"
    if mode in {FaultMode.FAIL_BEFORE, FaultMode.DIE_BEFORE}:
        assert not done[0], "the first effect is not the last one"


@pytest.mark.parametrize(
    ("operation", "effects"),
    [
        (OPERATIONS[2], ["datasets.create_branch"]),
        (OPERATIONS[3], ["datasets.delete_branch"]),
    ],
    ids=lambda o: getattr(o, "name", ""),
)
def test_branches_are_created_and_deleted_by_one_effect(
    template: Path, tmp_path: Path, operation: Operation, effects: list[str]
) -> None:
    plan = FaultPlan()
    attempt(next(copies(template, tmp_path)), operation, plan)
    assert [effect.name for effect in plan.effects] == effects


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_is_made_wholly_or_not_at_all(tmp_path: Path, mode: FaultMode) -> None:
    compiled = compile_schema(PAIR, domain=SystemClock().ulid())
    found = set()
    for number, plan in enumerate(sweep(mode, effects_max=60)):
        place = Place(str(tmp_path / f"g{number}"))
        error: OmnigraphError | None = None
        with suppress(SimulatedDeath):
            try:
                init_repository(faulty(place.store(), plan), SystemClock(), compiled)
            except OmnigraphError as caught:
                error = caught
        exists = place.store().datasets.exists(MANIFEST)
        found.add(exists)
        if not exists:
            with pytest.raises(GraphNotFoundError):
                place.open()
            place.init(PAIR)
        elif error is not None:
            assert isinstance(error, OutcomeUnknownError)
        graph = place.open()
        assert [commit.operation for commit in graph.list_commits()] == ["init"]
        add(graph, "ann")
        check_whole(place.open())
        check_recorded(place, graph)
    assert found == {True, False}


def undo(repository: Repository) -> None:
    """Bring back the branches of the prepared graph."""
    names = [str(name) for name in repository.branches.names()]
    if "team/new" in names:
        repository.branches.delete(
            BranchName("team/new"), bound=BranchName("main"), operation_id="UNDO"
        )
    if "old" not in names:
        repository.branches.create(BranchName("old"), source=MAIN_INCARNATION, operation_id="UNDO")


@pytest.mark.parametrize("mode", [FaultMode.FAIL_AFTER, FaultMode.DIE_BEFORE])
@pytest.mark.parametrize("operation", OPERATIONS[2:4], ids=lambda o: o.name)
def test_branches_on_s3_come_and_go_wholly(
    s3_place: Place, operation: Operation, mode: FaultMode
) -> None:
    """The locks are objects here, so their writes are swept as well."""
    prepare(s3_place)
    steps = 0
    for plan in sweep(mode, effects_max=60):
        error = attempt(s3_place, operation, plan)
        # The lease of a dead process would make the next one wait for ten seconds.
        s3_place.store().objects.delete_prefix("__leases")
        graph = s3_place.open()
        check_whole(graph)
        if not operation.is_done(graph):
            operation.run(repository_of(graph))
            check_whole(graph)
        elif error is not None:
            assert isinstance(error, OutcomeUnknownError)
        assert operation.is_done(s3_place.open())
        undo(repository_of(graph))
        steps += 1
    assert steps > 3
