"""A long history, followed by readers that stop, restart and fall behind, against a model.

Two branches are written, merged both ways, deleted and made again; maintenance and cleanup run
between. Readers keep nothing but a cursor or a page token, as text, and use a new handle for most
pages. What they are told is the model's history, commit by commit, or a typed gap; and a cursor
stands only where the model has a commit.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph.changes.diff import ChangeGapError
from omnigraph.changes.feed import FeedRequest
from omnigraph.changes.tokens import CursorRejectedError
from omnigraph.graph import Graph

SCHEMA = """
node Doc { slug: String @key  note: String?  body: Blob? }
edge Cites: Doc -> Doc { weight: I32? }
"""
MAIN, SIDE = "main", "side"
OWN = {MAIN: "m", SIDE: "s"}
"""With which letter the ids begin that a branch writes: merges never conflict."""

Rows = dict[tuple[str, str], dict[str, Any]]
Changes = dict[tuple[str, str], tuple[dict[str, Any] | None, dict[str, Any] | None]]


@dataclass
class Line:
    """One life of a branch in the model: its commits in order, and its rows."""

    rows: Rows = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    """The chain of first parents after the first commit of the graph."""

    def copy(self) -> Line:
        return Line(dict(self.rows), list(self.commits))


class World:
    """A graph, and what each of its commits has changed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.uri = str(root / "g.omni")
        self.graph = Graph.init(self.uri, SCHEMA, durability="process", auto_optimize=False)
        self.lines = {MAIN: Line()}
        self.changes: dict[str, Changes] = {}
        self.lives = 0
        """How often the side branch was made."""
        self.cleanups = 0
        self.create()

    def opened(self) -> Graph:
        return Graph.open(self.uri, durability="process", auto_optimize=False)

    # -- what happens ------------------------------------------------------------------------------

    def step(self) -> None:
        branch = self.chance.choice([MAIN, MAIN, SIDE]) if SIDE in self.lines else MAIN
        act = self.chance.choices(
            [self.write, self.delete, self.merge, self.optimize, self.recreate, self.clean],
            weights=[60, 20, 8, 4, 4, 2],
        )[0]
        act(branch)

    def write(self, branch: str) -> None:
        own = OWN[branch]
        slugs = [f"{own}{self.chance.randrange(12)}" for _ in range(self.chance.randint(1, 4))]
        rows: Rows = {("Doc", slug): self.document(slug) for slug in slugs}
        if self.chance.random() < 0.5:
            source, target = self.chance.choices(slugs, k=2)
            image = {
                "properties": {"weight": self.chance.randrange(3)},
                "endpoints": {"from": source, "to": target},
            }
            rows["Cites", f"{source}-{target}"] = image
        records = [_record(*key, image) for key, image in rows.items()]
        self.graph.load("\n".join(map(json.dumps, records)).encode(), mode="merge", branch=branch)
        self.note(branch, self.lines[branch].rows | rows)

    def document(self, slug: str) -> dict[str, Any]:
        values = {
            "slug": slug,
            "note": self.chance.choice([None, "", "x", "long " * 50]),
            "body": self.chance.choice([None, "base64:", "base64:YQ=="]),
        }
        return {"properties": values}

    def delete(self, branch: str) -> None:
        slug = f"{OWN[branch]}{self.chance.randrange(12)}"
        before = self.lines[branch].rows
        if ("Doc", slug) not in before:
            return
        self.graph.mutate(f'query d() {{ delete Doc where slug = "{slug}" }}', branch=branch)
        rows = {
            key: image
            for key, image in before.items()
            if key != ("Doc", slug) and slug not in image.get("endpoints", {}).values()
        }
        self.note(branch, rows)

    def merge(self, branch: str) -> None:
        if SIDE not in self.lines:
            return
        source, target = (SIDE, MAIN) if branch == MAIN else (MAIN, SIDE)
        if self.graph.branch_merge(source, target).commit is None:
            return
        letter = OWN[source]
        theirs = {k: v for k, v in self.lines[target].rows.items() if k[1][0] != letter}
        mine = {k: v for k, v in self.lines[source].rows.items() if k[1][0] == letter}
        self.note(target, theirs | mine)

    def optimize(self, _branch: str) -> None:
        self.graph.optimize()
        if self.lines[MAIN].commits:
            self.note(MAIN, self.lines[MAIN].rows)

    def recreate(self, _branch: str) -> None:
        if SIDE in self.lines:
            self.graph.branch_delete(SIDE)
            del self.lines[SIDE]
        else:
            self.create()

    def create(self) -> None:
        self.graph.branch_create_from(MAIN, SIDE)
        self.lines[SIDE] = self.lines[MAIN].copy()
        self.lives += 1

    def clean(self, _branch: str) -> None:
        self.graph.cleanup(
            keep_versions=self.chance.choice([3, 20, 60]), orphan_age_s=0, confirm=True
        )
        self.cleanups += 1

    def note(self, branch: str, rows: Rows) -> None:
        """Remember a commit and what it has changed."""
        line = self.lines[branch]
        head = self.graph.head_commit_id_for_branch(branch)
        if head in self.changes:
            assert rows == line.rows, "nothing was published"
            return
        self.changes[head] = {
            key: (line.rows.get(key), rows.get(key))
            for key in line.rows.keys() | rows.keys()
            if line.rows.get(key) != rows.get(key)
        }
        line.commits.append(head)
        line.rows = rows


def _record(type_name: str, entity_id: str, image: dict[str, Any]) -> dict[str, Any]:
    if type_name == "Doc":
        return {"type": type_name, "data": image["properties"]}
    ends = image["endpoints"]
    return {"edge": type_name, **ends, "data": {"id": entity_id, **image["properties"]}}


@dataclass
class Reader:
    """Follows one branch; between two pages it knows nothing but two texts."""

    world: World
    branch: str
    graph: Graph
    cursor: str | None = None
    page_token: str | None = None
    last: str | None = None
    """The last commit that was told completely; None at the beginning."""
    life: int = 0
    partial: Changes = field(default_factory=dict)
    """What pages have told of a block that is not complete yet."""
    open_commit: str | None = None
    told: int = 0
    gaps: int = 0
    rejected: int = 0

    def poll(self) -> bool:
        """Ask for one page; return whether there is more."""
        world, chance = self.world, self.world.chance
        if chance.random() < 0.6:
            self.graph = world.opened()
        if self.branch not in world.lines:
            return False
        request = FeedRequest(
            cursor=None if self.page_token else self.cursor,
            page_token=self.page_token,
            start=None if self.page_token or self.cursor else "beginning",
            limit=chance.choice([1, 2, 5, 1_000]),
            commits_max=chance.choice([1, 3, 128]),
        )
        try:
            page = self.graph.poll_changes(request, branch=self.branch).to_json()
        except ChangeGapError as gap:
            self.fall_back(gap)
            return True
        except CursorRejectedError:
            assert self.branch == SIDE, "only a branch that was made again forgets its readers"
            assert self.life != world.lives
            self.rejected += 1
            self.start_over()
            return True
        self.life = world.lives
        self.take(page)
        return not page.get("caught_up", False)

    def take(self, page: dict[str, Any]) -> None:
        chain = self.world.lines[self.branch].commits
        token = page.get("next_page_token")
        assert ("cursor" in page) == (token is None), "a page goes on or it ends"
        for number, block in enumerate(page["blocks"]):
            commit = block["cause"]["graph_commit_id"]
            if self.open_commit is None:
                assert commit == chain[self.place()], "the next commit of the chain"
                self.open_commit = commit
            assert commit == self.open_commit, "nothing comes between the parts of a block"
            for change in block["changes"]:
                key = (change["type"]["name"], change["id"])
                assert key not in self.partial, "told twice"
                self.partial[key] = (change.get("before"), change.get("after"))
            if token is None or number + 1 < len(page["blocks"]):
                self.finish_block()
        self.page_token = token
        if token is None:
            self.cursor = page["cursor"]
        else:
            told, whole = self.partial.items(), self.world.changes[self.open_commit or ""].items()
            assert told < whole, "a token stands inside a block"
        if page.get("caught_up"):
            assert self.last == chain[-1] if chain else self.last is None

    def place(self) -> int:
        """The number of the commit that comes next."""
        chain = self.world.lines[self.branch].commits
        return 0 if self.last is None else chain.index(self.last) + 1

    def finish_block(self) -> None:
        assert self.open_commit is not None
        assert self.partial == self.world.changes[self.open_commit], "the whole block"
        self.told += 1
        self.last, self.open_commit, self.partial = self.open_commit, None, {}

    def fall_back(self, gap: ChangeGapError) -> None:
        """Go on after a gap: from a baseline, as the error advises."""
        line = self.world.lines[self.branch]
        assert self.world.cleanups, "nothing was removed"
        assert gap.graph_commit_id == line.commits[self.place()], "the gap is where the reader is"
        self.gaps += 1
        lines, handshake = self.graph.baseline(branch=self.branch)
        found = sorted(json.loads(text)["data"]["id"] for text in lines)
        assert found == sorted(key[1] for key in line.rows)
        self.start_over()
        self.life = self.world.lives
        self.cursor, self.last = handshake["resume_cursor"], handshake["snapshot_commit_id"]
        assert self.last == (line.commits[-1] if line.commits else self.last)

    def start_over(self) -> None:
        self.cursor = self.page_token = self.last = self.open_commit = None
        self.partial = {}


def follow(root: Path, *, commits: int, seed: int) -> list[Reader]:
    """Make a history and follow it; two readers per branch, one of them lazy."""
    world = World(root, seed)
    readers = [Reader(world, branch, world.graph) for branch in (MAIN, MAIN, SIDE, SIDE)]
    while len(world.changes) < commits:
        world.step()
        for number, reader in enumerate(readers):
            if world.chance.random() < (0.4 if number % 2 else 0.05):
                reader.poll()
    for reader in readers:
        while reader.poll():
            pass
        if reader.branch in world.lines:
            chain = world.lines[reader.branch].commits
            assert reader.last == (chain[-1] if chain else None)
    return readers


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_are_told_the_whole_history_or_of_a_gap(tmp_path: Path, seed: int) -> None:
    readers = follow(tmp_path, commits=60, seed=seed)
    assert sum(reader.told for reader in readers) > 60


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_readers_follow_a_thousand_commits(tmp_path: Path) -> None:
    readers = follow(tmp_path, commits=1_000, seed=7)
    assert all(reader.told for reader in readers)
    assert sum(reader.gaps for reader in readers), "some readers fall too far behind"
    assert sum(reader.rejected for reader in readers), "some branches are made again"
