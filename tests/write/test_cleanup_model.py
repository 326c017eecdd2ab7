"""Random histories, then cleanup: whatever must be readable still is, and every handle goes on.

Several handles of one graph act, each with a store of its own, so each of them is idle while others
write, clean up, optimize and change the schema. A cleanup may run days later, or by a wrong clock.
"""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.errors import NotFoundError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest.errors import BranchConflictError
from support.clocks import WrongClock
from support.places import PERSON, SCHEMA, Place, add, ids, repository_of
from support.s3 import S3Server

ROUNDS = 14
HANDLES = 3
DAY_S = 24 * 3600


class History:
    """A graph and what each of its branches and tags must show."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.handles = [place.init(), *(place.open() for _ in range(1, HANDLES))]
        self.schema = SCHEMA
        self.branches: dict[str, set[str]] = {"main": set()}
        self.tags: dict[str, set[str]] = {}
        self.shown: dict[str, list[set[str]]] = {"main": [set()]}
        self.number = 0

    def step(self) -> None:
        writes = [self.write] * 3
        refs = [self.cut, self.drop, self.tag, self.untag]
        maintenance = [self.optimize, self.clean, self.reshape, self.look]
        act = self.chance.choice([*writes, *refs, *maintenance])
        act()

    @property
    def graph(self) -> Graph:
        """Any of the handles; the others are idle."""
        return self.chance.choice(self.handles)

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

    def reshape(self) -> None:
        """Change the schema, if no branch forbids it."""
        if len(self.branches) == 1:
            self.number += 1
            self.schema += f"node Extra{self.number} {{ code: String @key }}\n"
            self.graph.apply_schema(self.schema)

    def look(self) -> None:
        """Read with a handle that has been idle for a while."""
        branch = self.chance.choice(sorted(self.branches))
        found = ids(self.graph.snapshot_of(ReadTarget.branch(branch)))
        assert found == sorted(self.branches[branch])

    def clean(self) -> None:
        keep = self.chance.randint(1, 4)
        ahead_s, orphan_age_s = self.chance.choice(((0, 0), (2 * DAY_S, DAY_S), (-3_600, 0)))
        with self.place.open(clock=WrongClock(ahead_s)) as other:
            cleaner = self.chance.choice([self.graph, other]) if ahead_s == 0 else other
            result = cleaner.cleanup(keep_versions=keep, orphan_age_s=orphan_age_s, confirm=True)
        assert [each.error for each in result.datasets if each.error] == []
        self.check()

    def check(self) -> None:
        fresh = self.place.open()
        assert sorted(fresh.branch_list()) == sorted(self.branches)
        for handle in self.handles:
            assert ids(handle.snapshot()) == sorted(self.branches["main"])
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


def play(place: Place, seed: int) -> None:
    history = History(place, random.Random(seed))
    # Compaction up behind writes must have ended before the folder goes.
    with ExitStack() as stack:
        for handle in history.handles:
            stack.enter_context(handle)
        for _ in range(ROUNDS):
            history.step()
        history.clean()
        history.write()
        history.check()


def play_locally(seed: int) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        play(Place(str(root / "graph")), seed)
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("seed", range(6))
def test_cleanup_never_removes_what_is_needed(seed: int) -> None:
    play_locally(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 106))
def test_cleanup_never_removes_what_is_needed_in_many_histories(seed: int) -> None:
    play_locally(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_cleanup_never_removes_what_is_needed_on_s3(s3: S3Server, seed: int) -> None:
    play(Place(f"s3://{s3.bucket}/cleanup-{secrets.token_hex(4)}/graph", s3.options), seed)
