"""Jobs for fault sweeps, and the scenes that they start from: one table for every suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.graph import Graph
from support.groups import run_together
from support.linked import links_of_any_size
from support.places import SCHEMA, Place, add

BRANCH = "dev"
OTHER = "other"
RENAMED = (
    SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
    .replace("Person -> Person", "Human -> Human")
    .replace("age: I32?\n}\n\nnode City", "years: I64? @rename_from(age)\n}\n\nnode City")
    .replace("node City {", 'node Town @rename_from("City") {')
) + "\nnode Extra { code: String @key }\n"
REFORMED = RENAMED.replace("    years:", "    level: I32 @default(1)\n    years:")
SHRUNK = REFORMED.replace("edge Knows: Human -> Human", "")
SLIM = SCHEMA.replace("    age: I32?\n", "", 1)
WIDER = SCHEMA.replace("age: I32?", "age: I32?\n    motto: String?", 1) + (
    "\nnode Extra { code: String @key }\n"
)
ANOTHER = "\nnode Later { code: String @key }\n"

_PEOPLE = b"""\
{"type": "Person", "data": {"name": "ann", "age": 9}}
{"type": "Person", "data": {"name": "new", "age": 1}}
{"edge": "Knows", "from": "ann", "to": "new"}
"""
_NEW = b"""\
{"type": "Person", "data": {"name": "new", "age": 1}}
{"type": "City", "data": {"name": "kiel"}}
{"edge": "Knows", "from": "ann", "to": "new"}
"""
_LONE = b'{"type": "Person", "data": {"name": "ann", "age": 9}}\n'
_SOCIETY = b"""\
{"type": "Person", "data": {"name": "cid", "age": 3}}
{"type": "Person", "data": {"name": "dan"}}
{"type": "Person", "data": {"name": "eve"}}
{"type": "City", "data": {"name": "kiel"}}
{"type": "City", "data": {"name": "bonn"}}
{"edge": "Knows", "from": "bob", "to": "cid"}
{"edge": "Knows", "from": "cid", "to": "dan"}
"""
_UNDONE = "ada"
"""Who makes the commit that the revert takes back."""


# -- scenes ----------------------------------------------------------------------------------------


def _small(graph: Graph) -> None:
    """The smallest graph on which every writer has something to do, in several fragments."""
    add(graph, "ann")
    graph.ensure_indices()
    graph.load(
        b'{"type": "Person", "data": {"name": "bob"}}\n'
        b'{"edge": "Knows", "from": "ann", "to": "bob"}\n',
        mode="append",
    )


def _branched(graph: Graph) -> None:
    _small(graph)
    graph.branch_create(BRANCH)


def _changed(graph: Graph, branch: str, *, actor_id: str | None = None) -> None:
    """Insert, update and delete in every table that has rows, as one commit."""
    graph.mutate(
        'query q() { insert Person { name: "new", age: 1 } insert City { name: "rome" }'
        ' insert Knows { from: "new", to: "ann" } update Person set { age: 7 } where name = "ann"'
        ' delete Person where name = "bob" delete City where name = "bonn" }',
        branch=branch,
        actor_id=actor_id,
    )


def _ahead(graph: Graph) -> None:
    """Only the branch has been changed since it was cut."""
    _small(graph)
    graph.load(_SOCIETY, mode="append")
    graph.branch_create(BRANCH)
    _changed(graph, BRANCH)


def _main_changed(graph: Graph) -> None:
    graph.mutate(
        'query q() { insert Person { name: "own" } update Person set { age: 5 } where name = "cid"'
        ' delete Person where name = "eve" insert Knows { from: "own", to: "cid" }'
        ' insert City { name: "riga" } }'
    )


def _diverged(graph: Graph) -> None:
    """Both sides have been changed, in rows of every kind."""
    _ahead(graph)
    _main_changed(graph)


def _behind(graph: Graph) -> None:
    """Only `main` has been changed since the branch was cut."""
    _small(graph)
    graph.load(_SOCIETY, mode="append")
    graph.branch_create(BRANCH)
    _changed(graph, "main")


def _two_branches(graph: Graph) -> None:
    """A second branch that owns no table yet, and `main` has gone on."""
    _ahead(graph)
    graph.branch_create(OTHER)
    graph.mutate('query q() { insert Person { name: "mine" } }', branch=OTHER)
    _main_changed(graph)


def _beside(graph: Graph) -> None:
    """A second branch that has changed no table that the first one has changed."""
    _ahead(graph)
    graph.branch_create(OTHER)


def _undoable(graph: Graph) -> None:
    """A commit of every kind of change, and later ones on other rows."""
    _small(graph)
    graph.load(_SOCIETY, mode="append")
    _changed(graph, "main", actor_id=_UNDONE)
    _main_changed(graph)


def _reformed(graph: Graph) -> None:
    """Both sides have changed rows, and the branch its schema: names, columns and types."""
    _small(graph)
    graph.load(_SOCIETY, mode="append")
    graph.branch_create(BRANCH)
    graph.apply_schema(REFORMED, branch=BRANCH)
    graph.mutate(
        'query q() { insert Human { name: "new", years: 5000000000 } insert Extra { code: "x" }'
        ' update Human set { level: 7 } where name = "ann" delete Human where name = "bob" }',
        branch=BRANCH,
    )
    _main_changed(graph)


def _reformed_main(graph: Graph) -> None:
    """The schema of `main` has changed since the branch was cut, and rows of both."""
    _small(graph)
    graph.load(_SOCIETY, mode="append")
    graph.branch_create(BRANCH)
    graph.apply_schema(SHRUNK)
    graph.mutate('query q() { insert Human { name: "new" } insert Extra { code: "x" } }')
    graph.mutate('query q() { insert Person { name: "mine" } }', branch=BRANCH)


Scene = Callable[[Graph], None]


def prepare(place: Place, scene: Scene = _small) -> None:
    """Make the graph of a scene."""
    with place.init() as graph:
        scene(graph)


# -- jobs ------------------------------------------------------------------------------------------

Step = Callable[[Graph], object]


def _always(_graph: Graph) -> bool:
    return True


@dataclass(frozen=True)
class Job:
    """One write of one kind, or several that follow each other."""

    name: str
    steps: tuple[Step, ...]
    """Each is there wholly or not at all; the whole job may end between two of them."""
    branch: str = "main"
    scene: Scene = _small
    is_physical: bool = False
    """Whether only the form of the tables changes, not what they say."""
    complete_at: str = "write.post_phase_b_pre_manifest_commit"
    """The named point from which on recovery finishes it."""
    is_settled: Callable[[Graph], bool] = _always
    """Whether a graph in which the job is done says so: it was done once, and nothing is left."""

    @property
    def moves_tables(self) -> bool:
        """Whether it writes rows; otherwise it publishes versions that are there already."""
        return self.complete_at != "recovery.sidecar_write"

    def run(self, graph: Graph) -> None:
        for step in self.steps:
            step(graph)


def _job(name: str, step: Step, **options: object) -> Job:
    return Job(name, (step,), **options)  # type: ignore[arg-type]  # the fields of `Job`


_CONFIRMED = "recovery.sidecar_confirm"


def _mutation(statements: str) -> Step:
    return lambda graph: graph.mutate(f"query q() {{ {statements} }}")


def _load(records: bytes, mode: str, *, cascade: bool = False) -> Step:
    return lambda graph: graph.load(records, mode=mode, cascade=cascade)


def _merge(source: str, target: str = "main") -> Step:
    return lambda graph: graph.branch_merge(source, target)


def _linked_merge(source: str, target: str = "main") -> Step:
    def step(graph: Graph) -> object:
        with links_of_any_size():
            return graph.branch_merge(source, target)

    return step


def _merged(source: str, target: str = "main") -> Callable[[Graph], bool]:
    """One commit joins the two heads, and a second merge finds nothing to do."""

    def is_settled(graph: Graph) -> bool:
        merges = [c for c in graph.list_commits(target) if c.operation == "merge"]
        planned = graph.branch_merge(source, target, dry_run=True)
        return planned.outcome == "already_up_to_date" and [
            commit.merged_parent_commit_id for commit in merges
        ] == [graph.head_commit_id_for_branch(source)]

    return is_settled


def _merged_and_gone(graph: Graph) -> bool:
    merges = [c for c in graph.list_commits() if c.operation == "merge"]
    return len(merges) == 1 and BRANCH not in graph.branch_list()


def _revert(graph: Graph) -> object:
    undone = next(c for c in graph.list_commits() if c.actor_id == _UNDONE)
    return graph.commit_revert(undone.graph_commit_id)


def _reverted(graph: Graph) -> bool:
    return [c.operation for c in graph.list_commits()].count("revert") == 1


_INSERT = 'insert Person { name: "new", age: 1 } insert Knows { from: "ann", to: "new" }'

WRITES = [
    _job("insert", _mutation(_INSERT)),
    _job("insert on a branch", _mutation(_INSERT), branch=BRANCH, scene=_branched),
    _job("update", _mutation('update Person set { age: 7 } where name = "bob"')),
    _job("delete with cascade", _mutation('delete Person where name = "bob"')),
    _job("load append", _load(_NEW, "append")),
    _job("load merge", _load(_PEOPLE, "merge")),
    _job("load overwrite", _load(_PEOPLE, "overwrite")),
    _job("load with cascade", _load(_LONE, "overwrite", cascade=True)),
    _job("schema apply", lambda graph: graph.apply_schema(RENAMED)),
    _job(
        "schema apply on a branch",
        lambda graph: graph.apply_schema(WIDER),
        branch=BRANCH,
        scene=_branched,
    ),
    _job(
        "hard drop on a branch",
        lambda graph: graph.apply_schema(SLIM, allow_data_loss=True),
        branch=BRANCH,
        scene=_ahead,
    ),
    _job("ensure indices", lambda graph: graph.ensure_indices(), is_physical=True),
    _job("optimize", lambda graph: graph.optimize(), is_physical=True),
]
MERGES = [
    _job(
        "merge forward",
        _merge(BRANCH),
        scene=_ahead,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH),
    ),
    _job(
        "merge by link",
        _linked_merge(BRANCH),
        scene=_ahead,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH),
    ),
    _job(
        "merge by link into a branch",
        _linked_merge(BRANCH, OTHER),
        branch=OTHER,
        scene=_beside,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH, OTHER),
    ),
    _job(
        "merge three ways",
        _merge(BRANCH),
        scene=_diverged,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH),
    ),
    Job(
        "merge and delete",
        (_merge(BRANCH), lambda graph: graph.branch_delete(BRANCH)),
        scene=_diverged,
        complete_at=_CONFIRMED,
        is_settled=_merged_and_gone,
    ),
    _job(
        "merge by pointer",
        _merge("main", BRANCH),
        branch=BRANCH,
        scene=_behind,
        complete_at="recovery.sidecar_write",
        is_settled=_merged("main", BRANCH),
    ),
    _job(
        "merge into a branch",
        _merge(BRANCH, OTHER),
        branch=OTHER,
        scene=_two_branches,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH, OTHER),
    ),
    _job(
        "merge a schema",
        _merge(BRANCH),
        scene=_reformed,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH),
    ),
    _job(
        "merge a schema by link",
        _linked_merge(BRANCH),
        scene=_reformed,
        complete_at=_CONFIRMED,
        is_settled=_merged(BRANCH),
    ),
    _job(
        "merge a schema into a branch",
        _merge("main", BRANCH),
        branch=BRANCH,
        scene=_reformed_main,
        complete_at=_CONFIRMED,
        is_settled=_merged("main", BRANCH),
    ),
    _job("revert", _revert, scene=_undoable, complete_at=_CONFIRMED, is_settled=_reverted),
]
JOBS = WRITES + MERGES
JOBS_BY_NAME = {job.name: job for job in JOBS}


# -- groups ----------------------------------------------------------------------------------------


GROUP_NAMES = ("first", "second", "third")
"""The nodes that the members insert, each with an edge to it."""


def members_in(graph: Graph) -> list[str]:
    """Return whose rows are there; of each member the node and the edge, or neither."""
    snapshot = graph.refresh()
    people = snapshot.open("node:Person").scan().read_all()["id"].to_pylist()
    known = snapshot.open("edge:Knows").scan().read_all()["dst"].to_pylist()
    for name in GROUP_NAMES:
        assert people.count(name) == known.count(name) <= 1, f"half of {name}, or twice"
    return [name for name in GROUP_NAMES if name in people]


class GroupJob(Job):
    """Writes that are committed as one group: each of its steps is a member."""

    def run(self, graph: Graph) -> None:
        """Run the members that are not there yet."""
        missing = [GROUP_NAMES.index(name) for name in GROUP_NAMES if name not in members_in(graph)]
        for answer in run_together(graph, [self.steps[number] for number in missing]):
            if answer.error is not None:
                raise answer.error


GROUP = GroupJob(
    "group",
    tuple(
        _mutation(
            f'insert Person {{ name: "{name}" }} insert Knows {{ from: "ann", to: "{name}" }}'
        )
        for name in GROUP_NAMES
    ),
)
"""It is in no list of jobs: where a member fails, those behind it are tried again, so more contents
are legal than those between its steps."""
