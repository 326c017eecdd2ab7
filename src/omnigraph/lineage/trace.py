"""Where rows came from, and where they went: answers from the commits of a graph.

1. *Up* of a commit is the commit itself and, for a merge, the commits that it brought.
   *Up* of a type is every commit that wrote to it. *Up* of a row is the commit that wrote it as it
   is now, and, where that was a merge, the commit of the merged branch that did.
2. *Down* of a commit is every commit that read what it wrote: merges that brought it, and jobs
   that name this graph among their inputs at this commit or a later one. *Down* of a type is every
   commit that read it.
3. What cleanup or the deletion of a branch has removed is named in `notes`, and is no error.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import Final

from omnigraph.clock import decode_ulid
from omnigraph.dataclass import dataclass
from omnigraph.errors import NotFoundError
from omnigraph.lineage.openlineage import read_type
from omnigraph.lineage.record import InputRead, Lineage, read_lineage
from omnigraph.manifest import GraphCommit
from omnigraph.manifest.errors import CommitNotFoundError
from omnigraph.names import nearest_name

STEPS_MAX: Final = 100
_KINDS: Final = ("node", "edge")
_TYPE: Final = re.compile(r"(?:(node|edge):)?([A-Za-z_]\w*)(?:\.(\w+)|:(.+))?\Z", re.DOTALL)


class LineageSubjectError(NotFoundError):
    """There is no such commit, type, property or row."""

    code = "OG-LINEAGE-SUBJECT"
    template = "nothing is called '{subject}': {problem}"
    subject: str
    problem: str
    known: tuple[str, ...] = ()

    def _hint(self) -> str:
        near = nearest_name(self.subject.partition(":")[0].partition(".")[0], self.known)
        if near:
            return f"did you mean `{near}`?"
        return "name a commit, `Type`, `Type.property` or `Type:id`"


class Direction(StrEnum):
    """Which way a trace goes."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Subject:
    """What a trace is about: a commit, a type, one property of it, or one row."""

    text: str
    commit_id: str | None = None
    kind: str | None = None
    type_name: str = ""
    property_name: str | None = None
    entity_id: str | None = None


def parse_subject(text: str) -> Subject:
    """Read what a caller names; types and commits are looked up later.

    >>> parse_subject("Person:a:1").entity_id, parse_subject("edge:Knows.since").property_name
    ('a:1', 'since')
    """
    if decode_ulid(text) is not None:
        return Subject(text, commit_id=text)
    found = _TYPE.match(text)
    if found is None or found[2] in _KINDS:
        raise LineageSubjectError(text, "expected COMMIT, Type, Type.property or Type:id")
    return Subject(text, None, found[1], found[2], found[3], found[4])


@dataclass(frozen=True)
class Step:
    """One commit of a trace; `depth` counts the merges between it and the subject."""

    commit: GraphCommit
    depth: int = 0

    @cached_property
    def lineage(self) -> Lineage | None:
        """What the commit says of its job."""
        return read_lineage(self.commit.properties)

    def to_json(self) -> dict[str, object]:
        """Return the step as programs see it."""
        commit = self.commit
        shape: dict[str, object] = {
            "depth": self.depth,
            "graph_commit_id": commit.graph_commit_id,
            "graph_branch": commit.graph_branch,
            "operation": commit.operation,
            "created_at": commit.created_at,
            "parent_commit_id": commit.parent_commit_id,
            "merged_parent_commit_id": commit.merged_parent_commit_id,
            "actor_id": commit.actor_id,
            "message": commit.message,
        }
        return {**shape, "lineage": None if self.lineage is None else self.lineage.to_json()}


@dataclass(frozen=True)
class Trace:
    """The commits that a subject came from, or went to."""

    subject: str
    direction: Direction
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the trace as programs see it."""
        return {
            "subject": self.subject,
            "direction": str(self.direction),
            "steps": [step.to_json() for step in self.steps],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class KnownCommits:
    """The commits of the live branches of one graph, and a way to those of deleted ones."""

    commits: Mapping[str, GraphCommit]
    lost: Callable[[Iterable[str]], Mapping[str, GraphCommit]] = field(default=lambda _: {})
    """Looks for commits whose branches were deleted."""

    def find(self, commit_id: str) -> GraphCommit | None:
        """Return a commit, also of a deleted branch."""
        return self.commits.get(commit_id) or self.lost([commit_id]).get(commit_id)

    # -- up ---------------------------------------------------------------------------------------

    def brought_by(self, merge: GraphCommit) -> tuple[list[GraphCommit], list[str]]:
        """Return the commits that a merge brought, newest first, and the ids of missing ones."""
        if merge.merged_parent_commit_id is None:
            return [], []
        had = self._ancestors(merge.parent_commit_id)
        found: list[GraphCommit] = []
        missing: list[str] = []
        waiting, seen = deque([merge.merged_parent_commit_id]), set(had)
        while waiting and len(found) < STEPS_MAX:
            commit_id = waiting.popleft()
            if commit_id in seen:
                continue
            seen.add(commit_id)
            commit = self.find(commit_id)
            if commit is None:
                missing.append(commit_id)
                continue
            found.append(commit)
            waiting.extend(parents_of(commit))
        return found, missing

    def _ancestors(self, commit_id: str | None) -> set[str]:
        seen: set[str] = set()
        waiting = deque([] if commit_id is None else [commit_id])
        while waiting:
            one = waiting.popleft()
            if one not in seen:
                seen.add(one)
                commit = self.commits.get(one)
                waiting.extend(() if commit is None else parents_of(commit))
        return seen

    def up(self, commit: GraphCommit, *, depth: int = 0) -> tuple[list[Step], list[str]]:
        """Return a commit, what it brought, and notes about what is gone."""
        brought, missing = self.brought_by(commit)
        steps = [Step(commit, depth)]
        steps += [Step(one, depth + 1) for one in brought if not one.is_maintenance]
        return steps, [gone_note(one) for one in missing]

    # -- down -------------------------------------------------------------------------------------

    def readers_of(self, start: GraphCommit) -> list[GraphCommit]:
        """Return the commits that read what a commit wrote, newest first."""
        later = self._descendants(start.graph_commit_id)
        lineage = read_lineage(start.properties)
        written = None if lineage is None else {one.type_name for one in lineage.outputs}
        return _newest_first(
            commit
            for commit in self.commits.values()
            if commit.graph_commit_id != start.graph_commit_id
            and (_merges(commit, later) or self._reads(commit, later, written))
        )

    def readers_of_type(self, type_name: str, property_name: str | None) -> list[GraphCommit]:
        """Return the commits that read a type of this graph, newest first."""
        return _newest_first(
            commit
            for commit in self.commits.values()
            if self._reads(commit, None, {type_name}, property_name)
        )

    def _descendants(self, commit_id: str) -> set[str]:
        children: dict[str, list[str]] = {}
        for commit in self.commits.values():
            for parent in parents_of(commit):
                children.setdefault(parent, []).append(commit.graph_commit_id)
        seen, waiting = {commit_id}, deque([commit_id])
        while waiting:
            for child in children.get(waiting.popleft(), ()):
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
        return seen

    def _reads(
        self,
        commit: GraphCommit,
        versions: set[str] | None,
        types: set[str] | None,
        property_name: str | None = None,
    ) -> bool:
        lineage = read_lineage(commit.properties)
        if lineage is None:
            return False
        read = [
            one
            for one in lineage.inputs
            if self._is_own(one)
            and (versions is None or one.version in versions)
            and (types is None or read_type(one) in types)
        ]
        if property_name is None or not lineage.columns:
            return bool(read)
        columns = {column for given in lineage.columns.values() for column in given}
        names = {name for one in read for name in (one.source, read_type(one))}
        return any(f"{name}.{property_name}" in columns for name in names)

    def _is_own(self, read: InputRead) -> bool:
        """Whether an input is this graph: by the commit, so that a graph may be moved."""
        return read.format == "omnigraph" and read.version in self.commits


def trace_of_commit(
    known: KnownCommits, commit_id: str, way: Direction
) -> tuple[list[Step], list[str]]:
    """Return the steps of a commit, and notes about what is gone."""
    commit = known.find(commit_id)
    if commit is None:
        raise CommitNotFoundError(commit_id)
    if way is Direction.UP:
        return known.up(commit)
    return list(steps_of(known.readers_of(commit))), []


def trace(
    asked: Subject, way: Direction, steps: list[Step], notes: list[str], *, limit: int
) -> Trace:
    """Return the answer about a subject, with at most so many steps."""
    if len(steps) > limit:
        notes = [*notes, f"{len(steps) - limit} further commits are not shown"]
    return Trace(asked.text, way, tuple(steps[:limit]), tuple(dict.fromkeys(notes)))


def parents_of(commit: GraphCommit) -> list[str]:
    """Return the ids of the parents of a commit."""
    parents = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return [parent for parent in parents if parent is not None]


def writes_type(commit: GraphCommit, type_name: str, property_name: str | None) -> bool:
    """Whether a commit says that it wrote to a type, and to a property where it names them."""
    lineage = read_lineage(commit.properties)
    counts = None if lineage is None else lineage.output(type_name)
    if lineage is None or counts is None:
        return False
    if not counts.inserted + counts.updated + counts.deleted:
        return False
    return touches(lineage, type_name, property_name)


def touches(lineage: Lineage | None, type_name: str, property_name: str | None) -> bool:
    """Whether a commit may have written a property: it names it, or names none of the type."""
    if lineage is None or property_name is None:
        return True
    named = [one for one in lineage.columns if one.startswith(f"{type_name}.")]
    return not named or f"{type_name}.{property_name}" in named


def gone_note(commit_id: str) -> str:
    """Say that a commit cannot be found any more."""
    return f"commit {commit_id} is gone with its branch: what it was made from is not known"


def _merges(commit: GraphCommit, later: set[str]) -> bool:
    return commit.merged_parent_commit_id in later and commit.parent_commit_id not in later


def _newest_first(commits: Iterable[GraphCommit]) -> list[GraphCommit]:
    key = lambda commit: (commit.created_at, commit.graph_commit_id)  # noqa: E731 - one use
    return sorted(commits, key=key, reverse=True)


def steps_of(commits: Iterable[GraphCommit], *, depth: int = 0) -> Iterator[Step]:
    """Return commits as steps of one depth."""
    return (Step(commit, depth) for commit in commits)
