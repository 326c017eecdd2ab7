"""A handle that was idle while another process wrote and cleaned up goes on as if it were new.

The other process is another store with caches of its own. A tag or a branch pins the version that
the idle handle knows, so that only what comes after it is removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from crash.checks import check_chain, check_sound
from omnigraph.changes.feed import FeedRequest
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, ReadTarget
from omnigraph.manifest.errors import PreconditionFailedError
from support.places import Place

SCHEMA = """\
node P { k: String @key   n: I64? @index }
node Q { k: String @key }
node R { k: String @key }
"""
WRITES = 5
AFTER = {"P": 2, "Q": 2 + WRITES, "R": 2}
"""How many rows of each type there are when the idle handle comes back."""


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def anywhere(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


def opened(place: Place, mode: OpenMode = OpenMode.READ_WRITE) -> Graph:
    return Graph.open(
        place.uri,
        mode=mode,
        storage_options=place.options,
        durability="process",
        auto_optimize=False,
    )


def counts(graph: Graph, target: str = "main") -> dict[str, int]:
    return {
        name: graph.query(
            f"query q() {{ match {{ $x: {name} }} return {{ count($x) as n }} }}",
            target=ReadTarget.branch(target),
        ).to_pylist()[0]["n"]
        for name in AFTER
    }


def insert(graph: Graph, name: str, key: str, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert {name} {{ k: "{key}" }} }}', branch=branch)


def load(graph: Graph, mode: str, name: str) -> None:
    line = json.dumps({"type": name, "data": {"k": "mine"}}).encode()
    assert graph.load(line, mode=mode).commit is not None


def cut_mine(graph: Graph) -> None:
    graph.branch_create("mine")
    assert counts(graph, "mine") == AFTER, "the branch was cut from an old head"


def tag_mine(graph: Graph) -> None:
    tag = graph.tag_create("mine")
    assert tag.commit_id == graph.head_commit_id_for_branch()


def merge_side(graph: Graph) -> None:
    assert graph.branch_merge("side").commit is not None


def expect_old_head(graph: Graph) -> None:
    """The head that the handle has seen before it was idle is not the head any more."""
    old = graph.list_commits()[-1].graph_commit_id
    with pytest.raises(PreconditionFailedError):
        graph.mutate('query q() { insert P { k: "mine" } }', expected_head=old)


def poll(graph: Graph) -> None:
    assert graph.poll_changes(FeedRequest(start="now")).blocks == ()


def clean_up(graph: Graph) -> None:
    result = graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert [each.error for each in result.datasets if each.error] == []


@dataclass(frozen=True)
class Act:
    """Something that the idle handle does first when it comes back."""

    name: str
    run: Callable[[Graph], object]
    change: dict[str, int] = field(default_factory=dict)
    pins: tuple[str, ...] = ("tag", "branch")
    with_side: bool = False

    def __str__(self) -> str:
        return self.name


ACTS = (
    Act("read", lambda g: None),
    Act("refresh", lambda g: g.refresh()),
    Act("insert into a table that did not move", lambda g: insert(g, "P", "mine"), {"P": 1}),
    Act("insert into the table that moved", lambda g: insert(g, "Q", "mine"), {"Q": 1}),
    Act("update", lambda g: g.mutate('query q() { update P set { n: 7 } where k = "a0" }')),
    Act("delete", lambda g: g.mutate('query q() { delete Q where k = "a0" }'), {"Q": -1}),
    Act("load append", lambda g: load(g, "append", "R"), {"R": 1}),
    Act("load merge", lambda g: load(g, "merge", "Q"), {"Q": 1}),
    Act("load overwrite", lambda g: load(g, "overwrite", "Q"), {"Q": 1 - 2 - WRITES}),
    Act("expected head", expect_old_head),
    Act("tag create", tag_mine),
    Act("branch create", cut_mine),
    Act("branch delete", lambda g: g.branch_delete("keep"), pins=("branch",)),
    Act("branch merge", merge_side, {"R": 1}, with_side=True),
    Act("optimize", lambda g: g.optimize()),
    Act("ensure indices", lambda g: g.ensure_indices()),
    Act("cleanup", clean_up),
    Act("repair", lambda g: g.repair(confirm=True)),
    Act(
        "schema apply",
        lambda g: g.apply_schema(SCHEMA + "node Z { k: String @key }\n"),
        pins=("tag",),
    ),
    Act("export", lambda g: Counter(g.export_lines())),
    Act("feed", poll),
)


def left_idle(place: Place, act: Act, pin: str) -> Graph:
    """Return a handle behind whose back another process has written and cleaned up."""
    idle = Graph.init(
        place.uri,
        SCHEMA,
        storage_options=place.options,
        durability="process",
        auto_optimize=False,
    )
    for name in AFTER:
        idle.mutate(f'query q() {{ insert {name} {{ k: "a0" }} insert {name} {{ k: "a1" }} }}')
    if act.with_side:
        idle.branch_create("side")
        insert(idle, "R", "side", "side")
    counts(idle)
    with opened(place) as other:
        if pin == "tag":
            other.tag_create("keep")
        else:
            other.branch_create("keep")
        for number in range(WRITES):
            insert(other, "Q", f"b{number}")
        clean_up(other)
    return idle


def check_afterwards(place: Place, idle: Graph, act: Act, pin: str) -> None:
    expected = {name: count + act.change.get(name, 0) for name, count in AFTER.items()}
    assert counts(idle) == expected
    fresh = opened(place)
    assert counts(fresh) == expected
    check_chain(fresh, "main")
    check_sound(fresh)
    assert fresh.recovery_list() == []
    before = {"P": 2, "Q": 2, "R": 2}
    if pin == "tag":
        snapshot = fresh.snapshot_of(ReadTarget.tag("keep"))
        assert {n: snapshot.entry(f"node:{n}").row_count for n in before} == before
    elif act.name != "branch delete":
        assert counts(fresh, "keep") == before
    insert(fresh, "P", "later")
    insert(idle, "P", "last")


CASES = [(act, pin) for act in ACTS for pin in act.pins]
NAMES = [f"{act}, {pin}" for act, pin in CASES]


@pytest.mark.parametrize(("act", "pin"), CASES, ids=NAMES)
def test_an_idle_handle_goes_on_after_a_cleanup(anywhere: Place, act: Act, pin: str) -> None:
    idle = left_idle(anywhere, act, pin)
    act.run(idle)
    check_afterwards(anywhere, idle, act, pin)


def test_a_reader_sees_what_was_written_since(anywhere: Place) -> None:
    act = ACTS[0]
    left_idle(anywhere, act, "branch")
    reader, other = opened(anywhere, OpenMode.READ_ONLY), opened(anywhere)
    assert counts(reader) == AFTER
    other.branch_create("again")
    for number in range(WRITES):
        insert(other, "R", f"c{number}")
    clean_up(other)
    after = AFTER | {"R": AFTER["R"] + WRITES}
    assert counts(reader) == after
    assert reader.head_commit_id_for_branch() == other.head_commit_id_for_branch()
    reader.refresh()
    assert counts(reader) == after


def test_a_writer_goes_on_after_somebody_else_optimized_and_cleaned_up(anywhere: Place) -> None:
    """A table has versions that the handle has not seen and that are gone again."""
    writer = Graph.init(
        anywhere.uri,
        SCHEMA,
        storage_options=anywhere.options,
        durability="process",
        auto_optimize=False,
    )
    for number in range(4):
        insert(writer, "P", f"a{number}")
    with opened(anywhere) as other:
        for number in range(3):
            insert(other, "P", f"c{number}")
    insert(writer, "P", "x")
    with opened(anywhere) as other:
        other.optimize()
        other.cleanup(keep_versions=10, confirm=True)
    for number in range(3):
        insert(writer, "P", f"y{number}")
    assert writer.recovery_status() == []
    assert writer.recovery_list() == []
    assert {table.classification.value for table in writer.repair().tables} <= {"no_drift"}
    assert counts(opened(anywhere))["P"] == 4 + 3 + 1 + 3
    check_sound(opened(anywhere))
