"""Random histories, then cleanup: whatever must be readable still is."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest

from omnigraph.errors import NotFoundError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest.errors import BranchConflictError
from support.places import PERSON, Place, add, ids, repository_of

ROUNDS = 14


class History:
    """A graph and what each of its branches and tags must show."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.graph = place.init()
        self.branches: dict[str, set[str]] = {"main": set()}
        self.tags: dict[str, set[str]] = {}
        self.shown: dict[str, list[set[str]]] = {"main": [set()]}
        self.number = 0

    def step(self) -> None:
        writes = [self.write] * 3
        others = [self.cut, self.drop, self.tag, self.untag, self.optimize, self.clean]
        act = self.chance.choice([*writes, *others])
        act()

    def write(self) -> None:
        branch = self.chance.choice(sorted(self.branches))
        self.number += 1
        add(self.graph, f"p{self.number}", branch=branch)
        self.branches[branch] = self.branches[branch] | {f"p{self.number}"}
        self.shown[branch].append(self.branches[branch])

    def cut(self) -> None:
        self.number += 1
        source = self.chance.choice(sorted(self.branches))
        name = f"b{self.number}"
        self.graph.branch_create_from(source, name)
        self.branches[name] = self.branches[source]
        self.shown[name] = [self.branches[name]]

    def drop(self) -> None:
        for name in sorted(self.branches, reverse=True):
            if name != "main":
                try:
                    self.graph.branch_delete(name)
                except BranchConflictError:
                    continue  # Another branch or a tag holds it.
                del self.branches[name]
                return

    def tag(self) -> None:
        self.number += 1
        branch = self.chance.choice(sorted(self.branches))
        self.graph.tag_create(f"t{self.number}", ReadTarget.branch(branch))
        self.tags[f"t{self.number}"] = self.branches[branch]

    def untag(self) -> None:
        if self.tags:
            name = self.chance.choice(sorted(self.tags))
            self.graph.tag_delete(name)
            del self.tags[name]

    def optimize(self) -> None:
        self.graph.optimize()

    def clean(self) -> None:
        keep = self.chance.randint(1, 4)
        result = self.graph.cleanup(keep_versions=keep, orphan_age_s=0, confirm=True)
        assert [each.error for each in result.datasets if each.error] == []
        self.check()

    def check(self) -> None:
        fresh = self.place.open()
        assert sorted(fresh.branch_list()) == sorted(self.branches)
        for name, people in self.branches.items():
            assert ids(fresh.snapshot_of(ReadTarget.branch(name))) == sorted(people)
        for name, people in self.tags.items():
            assert ids(fresh.snapshot_of(ReadTarget.tag(name))) == sorted(people)
        for one in self.branches:
            for other in self.branches:
                base = fresh.merge_base(one, other)
                assert base is not None
        self.check_versions(fresh)

    def check_versions(self, fresh: Graph) -> None:
        """A manifest version that can be found can be read."""
        for version in range(1, fresh.snapshot().manifest_version + 1):
            try:
                snapshot = fresh.snapshot_at_version(version)
            except NotFoundError:
                continue
            assert set(ids(snapshot)) <= self.branches["main"]
        datasets = repository_of(fresh).store.datasets
        entry = fresh.snapshot().entries[PERSON]
        assert datasets.exists(entry.location, branch=entry.table_branch)


def play(seed: int) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        history = History(Place(str(root / "graph")), random.Random(seed))
        # Tidying up behind writes must have ended before the folder goes.
        with history.graph:
            for _ in range(ROUNDS):
                history.step()
            history.clean()
            history.write()
            history.check()
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("seed", range(6))
def test_cleanup_never_removes_what_is_needed(seed: int) -> None:
    play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 106))
def test_cleanup_never_removes_what_is_needed_in_many_histories(seed: int) -> None:
    play(seed)
