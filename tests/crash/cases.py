"""Operations that move several tables, for tests that interrupt each of them at every point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crash.child import Form
from crash.world import EXTRAS, Shape, World
from omnigraph.failpoints import OF_A_WRITE
from omnigraph.graph import Graph
from support.places import Place

FINISHED = frozenset(
    {
        "write.post_phase_b_pre_manifest_commit",
        "graph_publish.before_commit_append",
        "graph_publish.after_commit_append",
        "write.sidecar_deleted",
        "schema_apply.published",
    }
)
WRITE_POINTS = [name for name in OF_A_WRITE if name != "recovery.sidecar_confirm"]
"""Only merges confirm."""
RECOVERY_POINTS = {
    "write.after_first_table": (
        "recovery.sidecar_list",
        "recovery.after_void",
        "recovery.after_announce",
        "recovery.after_restore",
        "recovery.record_audit",
        "recovery.sidecar_delete",
    ),
    "write.post_phase_b_pre_manifest_commit": (
        "recovery.sidecar_list",
        "recovery.after_roll_forward",
        "recovery.record_audit",
        "recovery.sidecar_delete",
    ),
}
"""Which points the recovery of a write passes that died at this one: back, or forward."""


@dataclass(frozen=True)
class Case:
    """An operation that moves several tables, and what it makes of the world."""

    name: str
    form: Form
    change: Callable[[World], None]
    points: tuple[str, ...] = tuple(WRITE_POINTS)
    changes_content: bool = True
    with_branch: bool = False
    """Whether there is a branch `draft`."""
    is_diverged: bool = False
    """Whether `main` and `draft` have both been written since."""
    finished: frozenset[str] = FINISHED
    """The points from which on recovery finishes the operation."""

    @property
    def branch(self) -> str:
        return str(self.form.get("branch", "main"))


def grown(world: World, branch: str) -> None:
    rows = world.branches[branch]
    rows.people["new"] = (1, None)
    rows.places.add("rome")
    rows.knows.append(("new", "ann", None))


def grown_on(branch: str) -> Callable[[World], None]:
    return lambda world: grown(world, branch)


def shrunk(world: World) -> None:
    rows = world.branches["main"]
    rows.people["ann"] = (9, None)
    rows.delete_place("kiel")


def overwritten(world: World) -> None:
    world.branches["main"].knows = [("bob", "bob", 5)]
    world.branches["main"].lives_in = [("bob", "kiel")]


def reshaped(world: World) -> None:
    world.shape = RESHAPED


GROWTH = (
    'query q() { insert Person { name: "new", age: 1 } insert City { name: "rome" }'
    ' insert Knows { from: "new", to: "ann" } }'
)
RESHAPED = Shape(place="Town", has_note=True, extras=frozenset({EXTRAS[0]}))
CASES = [
    Case("insert", {"kind": "mutate", "branch": "main", "text": GROWTH}, grown_on("main")),
    Case(
        "first write on a branch",
        {"kind": "mutate", "branch": "draft", "text": GROWTH},
        grown_on("draft"),
        with_branch=True,
    ),
    Case(
        "branch merge",
        {"kind": "branch_merge", "source": "draft", "branch": "main"},
        grown_on("main"),
        (*WRITE_POINTS, "recovery.sidecar_confirm"),
        with_branch=True,
        is_diverged=True,
        # A merge counts only when it is confirmed.
        finished=FINISHED - {"write.post_phase_b_pre_manifest_commit"}
        | {"recovery.sidecar_confirm"},
    ),
    Case(
        "update and delete",
        {
            "kind": "mutate",
            "branch": "main",
            "text": 'query q() { update Person set { age: 9 } where name = "ann"'
            ' delete City where name = "kiel" }',
        },
        shrunk,
    ),
    Case(
        "load append",
        {
            "kind": "load",
            "mode": "append",
            "branch": "main",
            "records": [
                {"type": "Person", "data": {"name": "new", "age": 1}},
                {"type": "City", "data": {"name": "rome"}},
                {"edge": "Knows", "from": "new", "to": "ann"},
            ],
        },
        grown_on("main"),
    ),
    Case(
        "load overwrite",
        {
            "kind": "load",
            "mode": "overwrite",
            "branch": "main",
            "records": [
                {"edge": "Knows", "from": "bob", "to": "bob", "data": {"since": 5}},
                {"edge": "LivesIn", "from": "bob", "to": "kiel"},
            ],
        },
        overwritten,
    ),
    Case(
        "schema apply",
        {"kind": "schema", "text": RESHAPED.text(Shape()), "allow_data_loss": False},
        reshaped,
        (
            *(p for p in WRITE_POINTS if p not in ("write.post_stage", "write.turn_taken")),
            "schema_apply.reserved",
            "schema_apply.locked",
            "schema_apply.published",
        ),
    ),
    Case(
        "ensure indices",
        {"kind": "ensure_indices", "branch": "main"},
        lambda _: None,
        changes_content=False,
    ),
    Case("optimize", {"kind": "optimize"}, lambda _: None, changes_content=False),
]


def prepare(place: Place, case: Case) -> World:
    """Make a graph whose tables have two fragments each, and no indexes."""
    world = World()
    with place.init(world.shape.text()) as graph:
        for person, city in (("ann", "kiel"), ("bob", "bonn")):
            add_all(graph, world, person, city)
        if case.with_branch:
            graph.branch_create("draft")
            world.branches["draft"] = world.branches["main"].copy()
        if case.is_diverged:
            add_all(graph, world, "cas", "riga")
            graph.mutate(GROWTH, branch="draft")
            grown(world, "draft")
    return world


def add_all(graph: Graph, world: World, person: str, city: str) -> None:
    """Add a row to every table of `main`."""
    graph.mutate(
        f'query q() {{ insert Person {{ name: "{person}", age: 2 }}'
        f' insert City {{ name: "{city}" }} insert Knows {{ from: "{person}", to: "{person}" }}'
        f' insert LivesIn {{ from: "{person}", to: "{city}" }} }}'
    )
    rows = world.branches["main"]
    rows.people[person] = (2, None)
    rows.places.add(city)
    rows.knows.append((person, person, None))
    rows.lives_in.append((person, city))


def message(place: Place) -> dict[str, object]:
    """Tell a child to open a graph."""
    return {"do": "open", "uri": place.uri, "options": dict(place.options)}
