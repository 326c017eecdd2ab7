"""Random histories on three branches, merged in all directions, against dictionaries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest.errors import BranchConflictError
from omnigraph.merge.conflicts import MergeConflictError
from omnigraph.write.export.exporter import stream_lines
from support.linked import links_of_any_size

SCHEMA = """
node Item {
    name: String @key
    size: F64?
    marks: [String]?
    at: Vector(2)?
    body: Blob?
}
"""
BRANCHES = ("main", "a", "b")

names = st.sampled_from([f"n{number}" for number in range(8)])
records = st.fixed_dictionaries(
    {
        "name": names,
        "size": st.sampled_from([None, 0.0, -0.0, 2.5]),
        "marks": st.sampled_from([None, [], ["x"]]),
        "at": st.sampled_from([None, [1.0, 2.0]]),
        "body": st.sampled_from([None, "base64:YQ==", "base64:Yg=="]),
    }
)
branches = st.sampled_from(BRANCHES)
steps = st.one_of(
    st.tuples(st.just("write"), branches, st.lists(records, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), branches, names),
    st.tuples(st.just("merge"), branches, branches),
    st.tuples(st.just("cross"), st.permutations(BRANCHES), records),
    st.tuples(st.just("recreate"), st.sampled_from(BRANCHES[1:]), branches),
    st.tuples(st.just("optimize"), st.none(), st.none()),
)

Rows = dict[str, str]


@dataclass
class Commit:
    """A commit of the model: its rows and its parents."""

    rows: Rows
    parents: tuple[Commit, ...] = ()
    number: int = 0


@dataclass
class Model:
    """Branches as chains of commits, merged by the truth table."""

    heads: dict[str, Commit] = field(default_factory=dict)

    def merged(self, base: Rows, source: Rows, target: Rows) -> Rows | None:
        result = dict(target)
        for key in base.keys() | source.keys() | target.keys():
            old, mine, theirs = base.get(key), source.get(key), target.get(key)
            if mine in (old, theirs):
                continue
            if theirs != old:
                return None
            if mine is None:
                result.pop(key)
            else:
                result[key] = mine
        return result


def text(record: dict[str, Any]) -> str:
    """Spell a row so that -0.0 and 0.0 differ."""
    return repr(sorted(record.items()))


class World:
    """The graph and the model side by side."""

    def __init__(self, root: Path) -> None:
        self.graph = Graph.init(
            str(root / "g.omni"), SCHEMA, durability="process", auto_optimize=False
        )
        self.model = Model({"main": Commit({})})
        self.snapshots: dict[str, Rows] = {self.graph.head_commit_id_for_branch("main"): {}}
        for name in BRANCHES[1:]:
            self.graph.branch_create_from("main", name)
            self.model.heads[name] = self.model.heads["main"]

    def rows(self, branch: str) -> Rows:
        return self.model.heads[branch].rows

    def set_rows(self, branch: str, rows: Rows) -> None:
        self.model.heads[branch] = Commit(rows)
        self.snapshots[self.graph.head_commit_id_for_branch(branch)] = rows

    def write(self, branch: str, values: list[dict[str, Any]]) -> None:
        lines = [json.dumps({"type": "Item", "data": value}) for value in values]
        self.graph.load("\n".join(lines).encode(), mode="merge", branch=branch, on_duplicate="last")
        self.set_rows(branch, self.rows(branch) | {v["name"]: text(v) for v in values})

    def delete(self, branch: str, name: str) -> None:
        self.graph.mutate(f'query d() {{ delete Item where name = "{name}" }}', branch=branch)
        self.set_rows(branch, {k: v for k, v in self.rows(branch).items() if k != name})

    def merge(self, source: str, target: str) -> None:
        if source == target:
            return
        base = self.graph.merge_base(source, target)
        assert base is not None
        before = self.graph.head_commit_id_for_branch(target)
        expected = self.model.merged(
            self.snapshots[base.graph_commit_id], self.rows(source), self.rows(target)
        )
        planned = self.graph.branch_merge(source, target, dry_run=True)
        assert bool(planned.conflicts) == (expected is None)
        if expected is None:
            with pytest.raises(MergeConflictError) as caught:
                self.graph.branch_merge(source, target)
            assert caught.value.conflicts == planned.conflicts
            assert self.graph.head_commit_id_for_branch(target) == before
            return
        result = self.graph.branch_merge(source, target)
        assert result.outcome == planned.outcome
        if result.outcome == "already_up_to_date":
            assert self.graph.head_commit_id_for_branch(target) == before
        else:
            assert result.commit is not None
            assert result.commit.parent_commit_id == before
            assert result.commit.merged_parent_commit_id is not None
        self.set_rows(target, expected)
        again = self.graph.branch_merge(source, target)
        assert again.outcome == "already_up_to_date"

    def cross(self, order: list[str], record: dict[str, Any]) -> None:
        """Let two branches meet in both directions, one of them by way of the third."""
        first, second, third = order
        self.merge(first, third)
        self.write(first, [record])
        self.merge(second, first)
        self.merge(third, second)
        self.merge(first, second)
        self.merge(second, first)

    def recreate(self, branch: str, source: str) -> None:
        """Begin another life of a branch; what it had and nobody merged is gone."""
        if source == branch:
            source = "main"
        try:
            self.graph.branch_delete(branch)
        except BranchConflictError:
            # The other branch was cut from it.
            return
        self.graph.branch_create_from(source, branch)
        self.model.heads[branch] = self.model.heads[source]

    def optimize(self, *_: None) -> None:
        self.graph.optimize()
        self.set_rows("main", self.rows("main"))

    def check(self) -> None:
        for branch in BRANCHES:
            assert self.stored(branch) == self.rows(branch)

    def stored(self, branch: str) -> Rows:
        found: Rows = {}
        snapshot = self.graph.snapshot_of(ReadTarget.branch(branch))
        for line in stream_lines(snapshot):
            record = json.loads(line)
            data = {key: record["data"].get(key) for key in ("name", "size", "marks", "at", "body")}
            found[data["name"]] = text(data)
        return found


class LinkedWorld(World):
    """The same, and merges take over files wherever they can."""

    def merge(self, source: str, target: str) -> None:
        with links_of_any_size():
            super().merge(source, target)


def check(root: Path, work: list[tuple[str, Any, Any]], world_type: type[World] = World) -> None:
    world = world_type(root)
    for step, first, second in work:
        getattr(world, step)(first, second)
    world.check()


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(st.lists(steps, min_size=2, max_size=10))
def test_every_merge_gives_what_the_dictionaries_give(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any, Any]]
) -> None:
    check(tmp_path_factory.mktemp("merge"), work)


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(st.lists(steps, min_size=2, max_size=10))
def test_every_linked_merge_gives_what_the_dictionaries_give(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any, Any]]
) -> None:
    check(tmp_path_factory.mktemp("merge"), work, LinkedWorld)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), max_examples=150)
@given(st.lists(steps, min_size=4, max_size=24))
def test_every_linked_merge_of_a_long_history_gives_what_the_dictionaries_give(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any, Any]]
) -> None:
    check(tmp_path_factory.mktemp("merge"), work, LinkedWorld)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), max_examples=300)
@given(st.lists(steps, min_size=4, max_size=24))
def test_every_merge_of_a_long_history_gives_what_the_dictionaries_give(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any, Any]]
) -> None:
    check(tmp_path_factory.mktemp("merge"), work)
