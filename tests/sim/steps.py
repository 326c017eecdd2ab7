"""What handles do, and which errors each step may raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.maintenance.optimize import UncleanRecoveryError
from omnigraph.manifest import OpenMode, ReadTarget
from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.compact import pack_manifest
from omnigraph.manifest.errors import (
    BranchConflictError,
    BranchGoneError,
    BranchNotFoundError,
    CommitNotFoundError,
    CommitSettledError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    PublishTimeoutError,
    SchemaApplyInProgressError,
    SchemaMovedError,
    TagNotFoundError,
    VersionRemovedError,
)
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.locks.branch_lock import BranchLockLostError, BranchLockTimeoutError
from omnigraph.merge.conflicts import MergeConflictError, ReadSetConflictError
from omnigraph.store.errors import (
    DatasetNotFoundError,
    DatasetVersionNotFoundError,
    StagedFilesLostError,
    StaleBaseError,
)
from omnigraph.syntax.diagnostics import SourceError
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.schema_apply import (
    SchemaApplyLostError,
    SchemaApplyRunningError,
    SchemaMovingError,
)
from sim.changes import (
    E,
    P,
    Q,
    all_of,
    deleted,
    inserted,
    lines,
    overwritten,
    reshaped,
    shape_of,
    updated,
    with_property,
    with_type,
)
from sim.life import open_graph
from sim.model import Change, Write, WrongError, read_content
from sim.schedule import BranchFact, Handle, TagFact
from support.faulty_store import SimulatedDeath
from support.places import repository_of

Kinds = tuple[type[OmnigraphError], ...]
OPENING: Final[Kinds] = (BranchLockTimeoutError, BranchLockLostError)
RACES: Final[Kinds] = (
    CommitSettledError,
    ExpectedVersionMismatchError,
    PublishTimeoutError,
    SchemaApplyInProgressError,
    SchemaMovedError,
    BranchLockLostError,
    BranchLockTimeoutError,
)
CLEANED: Final[Kinds] = (DatasetVersionNotFoundError, StagedFilesLostError, VersionRemovedError)
"""Legal only where a cleanup ran meanwhile."""
PAUSED: Final[Kinds] = (StaleBaseError,)
"""Legal only where a handle was paused: two handles then believe that they hold the same lock."""
GONE: Final[Kinds] = (BranchGoneError, BranchNotFoundError)
"""Legal only where somebody has begun to delete the branch."""
MERGING: Final[Kinds] = (MergeConflictError, PreconditionFailedError, ReadSetConflictError)
RESHAPING: Final[Kinds] = (SchemaApplyRunningError, SchemaMovingError, SchemaApplyLostError)
"""Legal only where another schema was accepted, or is being applied, since the text was read."""
READING_BACK: Final[Kinds] = (
    *GONE,
    CommitNotFoundError,
    DatasetVersionNotFoundError,
    VersionRemovedError,
)
BRANCHES_MAX: Final = 3


@contextmanager
def legal(
    handle: Handle, what: str, kinds: Kinds = (), *, branches: tuple[str, ...] = ()
) -> Iterator[list[OmnigraphError]]:
    """Allow some errors; the list that is yielded holds the one that was raised, at the end."""
    schedule, life = handle.schedule, handle.life
    cleanups = schedule.cleanups
    is_cleaning = schedule.cleaning > 0
    raised: list[OmnigraphError] = []
    try:
        yield raised
    except OmnigraphError as error:
        allowed = (*kinds, OutcomeUnknownError)
        if is_cleaning or schedule.cleanups > cleanups:
            allowed += CLEANED
        if schedule.fate.has_paused:
            allowed += PAUSED
        if any(not schedule.is_surely_there(branch) for branch in branches):
            allowed += GONE
            if is_cleaning or schedule.cleanups > cleanups:
                # The rows of a deleted branch go while they are read.
                allowed += (DatasetNotFoundError,)
        if not isinstance(error, allowed):
            raise WrongError(f"{what}: {type(error).__name__} {error.code} {error}") from error
        schedule.scheduler.note(f"{life.name} {what}: {type(error).__name__} {error}")
        raised.append(error)


def write(
    handle: Handle,
    what: str,
    branch: str,
    *,
    change: Change | None,
    call: Callable[[str], GraphCommit | None],
    kinds: Kinds = (),
    branches: tuple[str, ...] = (),
) -> Write:
    """Run a call that makes at most one commit, and note what came of it."""
    chronicle = handle.chronicle
    required = handle.schedule.required(branch)
    actor = f"w{handle.schedule.number()}"
    noted = chronicle.begin(actor, f"{what} on {branch}", change)
    handle.schedule.scheduler.note(f"{handle.life.name} begins {actor}: {what} on {branch}")
    commit: GraphCommit | None = None
    try:
        with legal(handle, what, (*RACES, *kinds), branches=(branch, *branches)) as raised:
            commit = call(actor)
    except SimulatedDeath:
        chronicle.end(noted, "unknown")
        raise
    if raised:
        is_unknown = isinstance(raised[0], OutcomeUnknownError)
        chronicle.end(noted, "unknown" if is_unknown else "refused")
        return noted
    chronicle.end(noted, "done", commit)
    handle.schedule.scheduler.note(f"{handle.life.name} has done {actor}: {noted.commit_id}")
    if commit is not None and handle.chance.random() < 0.4:
        with legal(handle, "look", branches=(branch,)):
            handle.look(handle.graph, branch)
            chronicle.check_fresh(actor, commit.graph_commit_id, required)
    return noted


# -- mutations and loads ---------------------------------------------------------------------------


def branch_to_write(handle: Handle) -> str:
    names = handle.schedule.live_branches()
    return handle.chance.choice(["main", *names])


def own_keys(handle: Handle, branch: str, table: str) -> list[str]:
    """Return the keys that a branch may change."""
    content = handle.schedule.head_content(branch)
    found = content[table].rows if table in content else {}
    return sorted(str(key) for key in found if str(key).startswith(f"{branch}:"))


def new_key(handle: Handle, branch: str) -> str:
    return f"{branch}:{handle.schedule.number()}"


def mutate(handle: Handle, branch: str, statement: str, change: Change, kinds: Kinds = ()) -> None:
    write(
        handle,
        statement,
        branch,
        change=change,
        call=lambda actor: (
            handle.graph.mutate(
                f"query q() {{ {statement} }}", branch=branch, actor_id=actor
            ).commit
        ),
        kinds=kinds,
    )


def insert(handle: Handle) -> None:
    branch, number = branch_to_write(handle), handle.schedule.number()
    one, other = new_key(handle, branch), new_key(handle, branch)
    statement = f'insert P {{ k: "{one}", n: {number} }}'
    change = inserted(P, {one: (number,)})
    if handle.chance.random() < 0.5:
        statement += f' insert Q {{ k: "{other}" }}'
        change = all_of(change, inserted(Q, {other: ()}))
    mutate(handle, branch, statement, change)


def insert_edge(handle: Handle) -> None:
    branch, number = branch_to_write(handle), handle.schedule.number()
    keys = own_keys(handle, branch, P)
    if not keys:
        return insert(handle)
    source, target = handle.chance.choice(keys), handle.chance.choice(keys)
    statement = f'insert E {{ from: "{source}", to: "{target}", no: {number} }}'
    # Somebody may have deleted an end of it.
    return mutate(
        handle, branch, statement, inserted(E, {number: (source, target)}), (ValidationError,)
    )


def upsert(handle: Handle) -> None:
    branch, number = branch_to_write(handle), handle.schedule.number()
    key = handle.chance.choice([new_key(handle, branch), *own_keys(handle, branch, P)])
    change = inserted(P, {key: (number,)})
    mutate(handle, branch, f'upsert P {{ k: "{key}", n: {number} }}', change)


def update(handle: Handle) -> None:
    branch, number = branch_to_write(handle), handle.schedule.number()
    key = handle.chance.choice([new_key(handle, branch), *own_keys(handle, branch, P)])
    change = updated(key, number)
    statement = f'update P set {{ n: {number} }} where k = "{key}"'  # noqa: S608 - no SQL
    mutate(handle, branch, statement, change)


def delete(handle: Handle) -> None:
    branch = branch_to_write(handle)
    table = handle.chance.choice((P, Q))
    key = handle.chance.choice([new_key(handle, branch), *own_keys(handle, branch, table)])
    statement = f'delete {table.removeprefix("node:")} where k = "{key}"'
    mutate(handle, branch, statement, deleted(table, key))


def load(
    handle: Handle,
    mode: str,
    branch: str,
    records: list[dict[str, object]],
    *,
    change: Change,
    kinds: Kinds = (),
) -> None:
    write(
        handle,
        f"load {mode} of {len(records)}",
        branch,
        change=change,
        call=lambda actor: (
            handle.graph.load(lines(records), mode=mode, branch=branch, actor_id=actor).commit
        ),
        kinds=kinds,
    )


def load_append(handle: Handle) -> None:
    branch, number = branch_to_write(handle), handle.schedule.number()
    people = {new_key(handle, branch): (number,) for _ in range(3)}
    thing = new_key(handle, branch)
    records: list[dict[str, object]] = [
        {"type": "P", "data": {"k": key, "n": number}} for key in people
    ]
    records.append({"type": "Q", "data": {"k": thing}})
    change = all_of(inserted(P, dict(people)), inserted(Q, {thing: ()}))
    load(handle, "append", branch, records, change=change)


def load_merge(handle: Handle) -> None:
    branch, number = branch_to_write(handle), handle.schedule.number()
    known = own_keys(handle, branch, P)
    keys = [*handle.chance.sample(known, min(2, len(known))), new_key(handle, branch)]
    records: list[dict[str, object]] = [
        {"type": "P", "data": {"k": key, "n": number}} for key in keys
    ]
    change = inserted(P, dict.fromkeys(keys, (number,)))
    load(handle, "merge", branch, records, change=change)


def load_overwrite(handle: Handle) -> None:
    keys = [new_key(handle, "main") for _ in range(2)]
    columns = shape_of(handle.graph.schema_source())[Q] - {"k"}
    records: list[dict[str, object]] = [
        {"type": "Q", "data": {"k": key, **dict.fromkeys(sorted(columns))}} for key in keys
    ]
    change = overwritten(Q, dict.fromkeys(keys, ()))
    # Another schema may have been accepted since its columns were read.
    kinds = (SourceError, ValidationError)
    load(handle, "overwrite", "main", records, change=change, kinds=kinds)


def insert_extra(handle: Handle) -> None:
    """Write to a type that a schema change has made."""
    known = [key for key in handle.schedule.head_content("main") if key.startswith("node:X")]
    if not known:
        return insert(handle)
    table, key = handle.chance.choice(known), new_key(handle, "main")
    statement = f'insert {table.removeprefix("node:")} {{ k: "{key}" }}'
    return mutate(handle, "main", statement, inserted(table, {key: ()}), (SourceError,))


# -- schema, branches, tags ------------------------------------------------------------------------


def apply_schema(handle: Handle) -> None:
    with legal(handle, "schema") as raised:
        source = handle.graph.schema_source()
    if raised:
        return
    number = handle.schedule.number()
    is_type = handle.chance.random() < 0.5
    desired = with_type(source, f"X{number}") if is_type else with_property(source, f"x{number}")
    write(
        handle,
        f"schema apply {number}",
        "main",
        change=reshaped(shape_of(desired)),
        call=lambda actor: handle.graph.apply_schema(desired, actor_id=actor).commit,
        kinds=RESHAPING,
    )


def branch_create(handle: Handle) -> None:
    schedule, graph = handle.schedule, handle.graph
    live = schedule.live_branches()
    if len(live) > BRANCHES_MAX:
        return branch_delete(handle)
    source, name = handle.chance.choice(["main", *live]), f"b{schedule.number()}"
    required = schedule.required(source)
    schedule.branches[name] = fact = BranchFact()
    schedule.scheduler.note(f"{handle.life.name} cuts {name} from {source}")
    kinds = (*RACES, BranchConflictError)
    with legal(handle, "branch create", kinds, branches=(source,)) as raised:
        graph.branch_create_from(source, name)
        fact.is_sure = True
    if raised:
        fact.is_gone = not isinstance(raised[0], OutcomeUnknownError)
        return None
    with legal(handle, "look", branches=(name,)):
        snapshot = graph.snapshot_of(ReadTarget.branch(name))
        handle.chronicle.see(snapshot)
        handle.chronicle.check_fresh(f"branch {name}", snapshot.commit_id, required)
    return None


def branch_delete(handle: Handle) -> None:
    schedule = handle.schedule
    live = schedule.live_branches()[1:]
    if not live:
        return branch_create(handle)
    name = handle.chance.choice(live)
    fact = schedule.branches[name]
    fact.deletions += 1
    schedule.scheduler.note(f"{handle.life.name} deletes {name}")
    kinds = (*RACES, BranchConflictError)
    with legal(handle, "branch delete", kinds, branches=(name,)) as raised:
        handle.graph.branch_delete(name)
    if not raised:
        fact.is_gone = True
    elif isinstance(raised[0], GONE) and fact.is_sure and fact.deletions == 1:
        raise WrongError(f"branch {name} is lost: {raised[0]}")
    elif not isinstance(raised[0], (OutcomeUnknownError, *GONE)):
        fact.deletions -= 1
    return None


def branch_merge(handle: Handle) -> None:
    schedule, graph, chronicle = handle.schedule, handle.graph, handle.chronicle
    live = schedule.live_branches()
    if len(live) == 1:
        return branch_create(handle)
    source = handle.chance.choice(live[1:])
    target = handle.chance.choice(["main", "main", *(name for name in live if name != source)])
    with legal(handle, "look", branches=(source,)) as raised:
        handle.look(graph, source)
    if raised:
        return None
    required = schedule.required(source)
    commits: list[GraphCommit | None] = []

    def merge(actor: str) -> GraphCommit | None:
        commits.append(graph.branch_merge(source, target, actor_id=actor).commit)
        return commits[0]

    write(
        handle,
        f"merge of {source}",
        target,
        change=None,
        call=merge,
        kinds=MERGING,
        branches=(source,),
    )
    if commits and commits[0] is not None:
        merged_commit = str(commits[0].merged_parent_commit_id)
        with legal(handle, "look", READING_BACK, branches=(source,)) as gone:
            # The call that committed it may not have returned yet.
            snapshot = graph.snapshot_of(ReadTarget.commit(merged_commit))
            chronicle.learn(snapshot.state.commits())
        if not gone:
            chronicle.check_fresh(f"merge of {source}", merged_commit, required)
    return None


def tag_create(handle: Handle) -> None:
    schedule = handle.schedule
    branch, name = handle.chance.choice(schedule.live_branches()), f"t{schedule.number()}"
    required = schedule.required(branch)
    schedule.scheduler.note(f"{handle.life.name} tags {branch} as {name}")
    # What it is about to pin may be removed.
    kinds = (*RACES, CommitNotFoundError)
    with legal(handle, "tag create", kinds, branches=(branch,)) as raised:
        tag = handle.graph.tag_create(name, ReadTarget.branch(branch))
    if not raised:
        schedule.tags[name] = TagFact(tag.commit_id)
        with legal(handle, "look", branches=(branch,)):
            handle.chronicle.see(handle.graph.snapshot_of(ReadTarget.branch(branch)))
            handle.chronicle.check_fresh(f"tag {name}", tag.commit_id, required)


def tag_delete(handle: Handle) -> None:
    names = sorted(handle.schedule.tags)
    if not names:
        return tag_create(handle)
    name = handle.chance.choice(names)
    fact = handle.schedule.tags[name]
    fact.deletions += 1
    with legal(handle, "tag delete", (*RACES, TagNotFoundError)) as raised:
        handle.graph.tag_delete(name)
    if raised and isinstance(raised[0], TagNotFoundError) and fact.deletions == 1:
        raise WrongError(f"tag {name} is lost: {raised[0]}")
    if raised and not isinstance(raised[0], (OutcomeUnknownError, TagNotFoundError)):
        fact.deletions -= 1
    return None


# -- maintenance -----------------------------------------------------------------------------------


def optimize(handle: Handle) -> None:
    kinds = (*RACES, UncleanRecoveryError)
    with legal(handle, "optimize", kinds):
        handle.graph.optimize()


def ensure_indices(handle: Handle) -> None:
    branch = branch_to_write(handle)
    kinds = (*RACES, UncleanRecoveryError)
    with legal(handle, "ensure indices", kinds, branches=(branch,)):
        handle.graph.ensure_indices(branch)


def cleanup(handle: Handle) -> None:
    """Remove old versions, and what others may just have prepared."""
    schedule, chance = handle.schedule, handle.chance
    keep, orphan_age_s = chance.choice((1, 1, 1, 2, 3, 10)), chance.choice((0, 24 * 3600))
    if chance.random() < 0.2:
        schedule.let_days_pass()
    schedule.scheduler.note(f"{handle.life.name} cleans up, keeps {keep}, age {orphan_age_s}")
    schedule.cleanups += 1
    schedule.cleaning += 1
    try:
        # A branch may be deleted between two looks at it.
        kinds = (*RACES, *GONE)
        with legal(handle, "cleanup", kinds):
            result = handle.graph.cleanup(
                keep_versions=keep, orphan_age_s=orphan_age_s, confirm=True
            )
            problems = [(each.type_key, each.error) for each in result.datasets if each.error]
            schedule.scheduler.note(
                f"{handle.life.name} has removed"
                f" {sum(each.old_versions_removed for each in result.datasets)} {problems}"
            )
    finally:
        schedule.cleaning -= 1


def pack(handle: Handle) -> None:
    """Put old versions into packs, as the background worker of a handle does."""
    repository = repository_of(handle.graph)
    datasets = repository.store.datasets
    with legal(handle, "pack", (*RACES, *GONE)):
        for incarnation in repository.branches.incarnations():
            for entry in repository.reader.latest(incarnation).entries.values():
                if entry.owner_branch == incarnation.text:
                    datasets.pack_versions(entry.location, branch=entry.table_branch)
            if datasets.has_versions_to_pack(MANIFEST, branch=incarnation.lance_branch):
                pack_manifest(repository, incarnation)


def repair_preview(handle: Handle) -> None:
    with legal(handle, "repair preview", RACES):
        handle.graph.repair()


def refresh(handle: Handle) -> None:
    required = handle.schedule.required("main")
    with legal(handle, "refresh", RACES):
        snapshot = handle.graph.refresh()
        handle.chronicle.see(snapshot)
        handle.chronicle.check_fresh("refresh", snapshot.commit_id, required)


# -- reads -----------------------------------------------------------------------------------------


def read_branch(handle: Handle) -> None:
    branch = branch_to_write(handle)
    with legal(handle, "read", branches=(branch,)):
        handle.look(handle.graph, branch)


def query(handle: Handle) -> None:
    branch = branch_to_write(handle)
    required = handle.schedule.required(branch)
    with legal(handle, "query", branches=(branch,)):
        result = handle.graph.query(
            "query q() { match { $p: P } return { $p.k as k, $p.n as n } }",
            target=ReadTarget.branch(branch),
        )
        handle.chronicle.learn(handle.graph.list_commits(branch))
        commit_id = result.graph_commit_id
        handle.chronicle.check_fresh(f"a query of {branch}", commit_id, required)
        content = handle.chronicle.content(commit_id)
        found = {row["k"]: (row["n"],) for row in result.to_pylist()}
        if content is not None and found != content[P].rows:
            raise WrongError(f"a query at {commit_id} found {found}, not {content[P].rows}")


def read_commit(handle: Handle) -> None:
    """Read an old commit: what it showed, or an error that says that it is gone."""
    chronicle = handle.chronicle
    known = sorted(write.commit_id for write in chronicle.writes.values() if write.commit_id)
    if not known:
        return read_branch(handle)
    commit_id = handle.chance.choice(known)
    with legal(handle, "read commit", READING_BACK):
        snapshot = handle.graph.snapshot_of(ReadTarget.commit(commit_id))
        chronicle.learn(snapshot.state.commits())
        chronicle.check_content("a read", commit_id, read_content(snapshot))
    return None


def read_tag(handle: Handle) -> None:
    names = sorted(handle.schedule.tags)
    if not names:
        return read_branch(handle)
    name = handle.chance.choice(names)
    fact = handle.schedule.tags[name]
    with legal(handle, "read tag", (TagNotFoundError, CommitNotFoundError)) as raised:
        snapshot = handle.graph.snapshot_of(ReadTarget.tag(name))
        content = read_content(snapshot)
        handle.chronicle.learn(snapshot.state.commits())
        handle.chronicle.check_content(f"tag {name}", fact.commit_id, content)
    if raised and not fact.deletions:
        raise WrongError(f"tag {name} is lost: {raised[0]}")
    return None


def read_afresh(handle: Handle) -> None:
    """Let somebody open the graph for reading only, and look at every branch."""
    own = handle._life
    handle._life = handle.new_life()
    try:
        with legal(handle, "read afresh", GONE):
            graph = open_graph(
                handle.life, handle.schedule.root, handle.schedule.kind, mode=OpenMode.READ_ONLY
            )
            for branch in graph.branch_list():
                handle.look(graph, branch)
    except SimulatedDeath:
        if handle.life.is_dead:
            return
        raise
    finally:
        handle._life = own


def reopen(handle: Handle) -> None:
    handle.graph.close()
    handle.life.end()
    handle.open()


def idle(handle: Handle) -> None:
    handle.life.wait(handle.chance.uniform(5.0, 40.0))


STEPS: Final[tuple[tuple[int, Callable[[Handle], None]], ...]] = (
    (10, insert),
    (3, insert_edge),
    (5, upsert),
    (5, update),
    (4, delete),
    (4, load_append),
    (4, load_merge),
    (2, load_overwrite),
    (2, insert_extra),
    (4, apply_schema),
    (6, branch_create),
    (4, branch_delete),
    (5, branch_merge),
    (6, tag_create),
    (2, tag_delete),
    (3, optimize),
    (2, ensure_indices),
    (9, cleanup),
    (6, pack),
    (2, repair_preview),
    (2, refresh),
    (6, read_branch),
    (4, query),
    (3, read_commit),
    (3, read_tag),
    (2, read_afresh),
    (2, reopen),
    (6, idle),
)


def draw_step(handle: Handle) -> Callable[[], None]:
    """Draw what a handle does next."""
    weights = [weight for weight, _ in STEPS]
    step = handle.chance.choices([step for _, step in STEPS], weights)[0]

    def run() -> None:
        step(handle)

    run.__name__ = step.__name__
    return run
