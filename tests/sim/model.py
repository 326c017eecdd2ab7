"""What is true of a simulated graph: which commits there are, and what each of them shows.

The order of commits is read from the graph, their meaning is known here. Every write has an actor
of its own, so a commit tells which write it is. What a commit shows follows from what its parent
shows; a merge from three commits. An outcome that nobody was told permits both answers, and the
commits tell which one it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.manifest import Snapshot
from omnigraph.manifest.commits import GraphCommit, merge_base

Row = tuple[object, ...]


@dataclass(frozen=True)
class Table:
    """The rows of a type by key, and the names of its columns."""

    columns: frozenset[str]
    rows: Mapping[object, Row] = field(default_factory=dict)

    def with_rows(self, rows: Mapping[object, Row]) -> Table:
        return Table(self.columns, {**self.rows, **rows})

    def without(self, keys: Iterable[object]) -> Table:
        gone = set(keys)
        return Table(self.columns, {k: row for k, row in self.rows.items() if k not in gone})


Content = Mapping[str, Table]
"""The tables of one commit by table key."""
Change = Callable[[Content], Content]
Outcome = Literal["running", "done", "refused", "unknown"]


class WrongError(AssertionError):
    """The graph is not what it was promised to be."""


@dataclass
class Write:
    """One call that makes at most one commit."""

    actor: str
    what: str
    change: Change | None
    """What it makes of the content; None for a merge."""
    begun: int
    outcome: Outcome = "running"
    ended: int = 0
    commit_id: str | None = None


class Chronicle:
    """Everything that is known about the commits of one graph."""

    def __init__(self, first: str, content: Content) -> None:
        self._first = first
        self._contents: dict[str, Content] = {first: content}
        self._commits: dict[str, GraphCommit] = {}
        self._of_actor: dict[str, str] = {}
        self._ancestors: dict[str, frozenset[str]] = {first: frozenset({first})}
        self.writes: dict[str, Write] = {}
        self.acknowledged: dict[str | None, dict[str, int]] = {}
        """Per branch incarnation, the commits that somebody was told of, and when."""
        self.heads: dict[str | None, str] = {None: first}
        """The newest commit that anybody has seen, per branch incarnation."""
        self._events = 0

    # -- writes -----------------------------------------------------------------------------------

    def tick(self) -> int:
        """Number the moments at which calls begin and end."""
        self._events += 1
        return self._events

    def begin(self, actor: str, what: str, change: Change | None) -> Write:
        write = Write(actor, what, change, self.tick())
        self.writes[actor] = write
        return write

    def end(self, write: Write, outcome: Outcome, commit: GraphCommit | None = None) -> None:
        write.outcome, write.ended = outcome, self.tick()
        if commit is None:
            return
        write.commit_id = commit.graph_commit_id
        told = self.acknowledged.setdefault(commit.manifest_branch, {})
        told[commit.graph_commit_id] = write.ended

    def required(self, incarnation: str | None) -> frozenset[str]:
        """Return the commits that whoever looks at a branch from now on must see."""
        return frozenset(self.acknowledged.get(incarnation, ()))

    # -- commits ----------------------------------------------------------------------------------

    def learn(self, commits: Iterable[GraphCommit]) -> None:
        """Take note of commits; what was known about them must not have changed."""
        for commit in commits:
            known = self._commits.get(commit.graph_commit_id)
            if known is None:
                self._commits[commit.graph_commit_id] = commit
                self._note_actor(commit)
            elif known != commit:
                raise WrongError(f"a commit has changed: {known} is now {commit}")

    def _note_actor(self, commit: GraphCommit) -> None:
        write = self.writes.get(commit.actor_id or "")
        if write is None or commit.is_maintenance:
            return
        other = self._of_actor.setdefault(write.actor, commit.graph_commit_id)
        if other != commit.graph_commit_id:
            raise WrongError(f"{write} happened twice: {other} and {commit.graph_commit_id}")

    def see(self, snapshot: Snapshot) -> None:
        """Take note of what a reader has seen of a branch."""
        state = snapshot.state
        self.learn(state.commits())
        self.heads[snapshot.incarnation.lance_branch] = snapshot.commit_id

    def ancestors(self, commit_id: str) -> frozenset[str]:
        """Return a commit and all before it, over both kinds of parents, as far as known."""
        found = self._ancestors.get(commit_id)
        if found is None:
            commit = self._commits.get(commit_id)
            parents = () if commit is None else _parents(commit)
            found = frozenset({commit_id}).union(*(self.ancestors(each) for each in parents))
            if commit is not None and all(each in self._ancestors for each in parents):
                self._ancestors[commit_id] = found
        return found

    def content(self, commit_id: str) -> Content | None:
        """Return what a commit shows; None when that cannot be known."""
        chain: list[GraphCommit] = []
        while commit_id not in self._contents:
            commit = self._commits.get(commit_id)
            if commit is None or commit.parent_commit_id is None:
                return None
            chain.append(commit)
            commit_id = commit.parent_commit_id
        for commit in reversed(chain):
            content = self._after(commit, self._contents[str(commit.parent_commit_id)])
            if content is None:
                return None
            self._contents[commit.graph_commit_id] = content
        return self._contents[(chain[0].graph_commit_id if chain else commit_id)]

    def _after(self, commit: GraphCommit, before: Content) -> Content | None:
        if commit.is_maintenance:
            return before
        write = self.writes.get(commit.actor_id or "")
        if write is None:
            raise WrongError(f"nobody has made this commit: {commit}")
        if write.change is not None:
            return write.change(before)
        return self._merged(commit)

    def _merged(self, commit: GraphCommit) -> Content | None:
        ours, theirs = str(commit.parent_commit_id), str(commit.merged_parent_commit_id)
        base = merge_base(theirs, ours, self._commits.values())
        if base is None:
            return None
        contents = [self.content(each) for each in (base.graph_commit_id, ours, theirs)]
        if any(each is None for each in contents):
            return None
        return merged(*(each for each in contents if each is not None))

    # -- checks -----------------------------------------------------------------------------------

    def check_fresh(self, what: str, commit_id: str, required: Iterable[str]) -> None:
        """Whoever has seen a commit has seen these too."""
        missing = set(required) - self.ancestors(commit_id)
        if missing:
            writes = [
                self.writes[str(self._commits[m].actor_id)].what
                for m in sorted(missing)
                if m in self._commits and self._commits[m].actor_id in self.writes
            ]
            raise WrongError(f"{what} saw {commit_id}, which lacks {sorted(missing)}: {writes}")

    def check_content(self, what: str, commit_id: str, found: Content) -> None:
        expected = self.content(commit_id)
        if expected is None:
            # A merge of a branch that was deleted before anybody looked: believe it once.
            self._contents[commit_id] = found
        elif found != expected:
            raise WrongError(f"{what} at {commit_id}:\n{difference(expected, found)}")

    def check_history(self, incarnation: str | None, snapshot: Snapshot) -> None:
        """A branch is one chain; it has what was acknowledged, in an order that the callers saw."""
        chain = snapshot.state.commits()
        parents = [commit.parent_commit_id for commit in chain]
        ids = [commit.graph_commit_id for commit in chain]
        if parents != [*ids[1:], None] or ids[:1] != [snapshot.commit_id]:
            raise WrongError(f"the history is no chain: {chain}")
        if missing := self.required(incarnation) - set(ids):
            raise WrongError(f"acknowledged and lost: {sorted(missing)}")
        writes = [self.writes.get(commit.actor_id or "") for commit in reversed(chain)]
        latest_begin = 0
        for write in (write for write in writes if write is not None):
            if write.ended and write.ended < latest_begin and write.outcome == "done":
                raise WrongError(f"{write} stands above a write that began after its end")
            latest_begin = max(latest_begin, write.begun)

    def check_writes(self) -> None:
        """What was refused is not there."""
        for write in self.writes.values():
            commit_id = self._of_actor.get(write.actor)
            if write.outcome == "refused" and commit_id is not None:
                raise WrongError(f"refused and done: {write}, commit {commit_id}")
            if write.outcome == "done" and commit_id not in (None, write.commit_id):
                raise WrongError(f"done as another commit: {write}, commit {commit_id}")


def _parents(commit: GraphCommit) -> tuple[str, ...]:
    both = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return tuple(parent for parent in both if parent is not None)


def merged(base: Content, ours: Content, theirs: Content) -> Content:
    """Take over what the source has changed since the base; schemas only grow in this suite."""
    result = dict(ours)
    for key, source in theirs.items():
        if key not in ours:
            if key not in base:
                result[key] = source
            continue
        known = base.get(key, Table(frozenset(), {}))
        rows = dict(ours[key].rows)
        before, after = known.rows, source.rows
        for name in before.keys() | after.keys():
            if before.get(name) == after.get(name):
                continue
            if name in after:
                rows[name] = after[name]
            else:
                rows.pop(name, None)
        result[key] = Table(ours[key].columns | (source.columns - known.columns), rows)
    return result


def difference(expected: Content, found: Content) -> str:
    """Say where two contents differ."""
    lines = []
    for key in sorted(expected.keys() | found.keys()):
        one, other = expected.get(key), found.get(key)
        if one is None or other is None:
            lines.append(f"{key}: expected {one}, found {other}")
            continue
        if one.columns != other.columns:
            lines.append(f"{key}: columns {sorted(one.columns)}, found {sorted(other.columns)}")
        lines += [
            f"{key} {name}: expected {one.rows.get(name)}, found {other.rows.get(name)}"
            for name in sorted(one.rows.keys() | other.rows.keys(), key=str)
            if one.rows.get(name) != other.rows.get(name)
        ]
    return "\n".join(lines)


def read_content(snapshot: Snapshot) -> Content:
    """Return what a snapshot shows."""
    return {key: _read_table(snapshot, key) for key in sorted(snapshot.entries)}


def _read_table(snapshot: Snapshot, key: str) -> Table:
    rows = snapshot.open(key).scan().read_all()
    columns = frozenset(rows.column_names) - {"id"}
    if rows.num_rows != snapshot.entry(key).row_count:
        raise WrongError(
            f"{key} has {rows.num_rows} rows, {snapshot.entry(key).row_count} published"
        )
    found: dict[object, Row] = {}
    for row in rows.to_pylist():
        if key.startswith("edge:"):
            name: object = row["no"]
            values: Row = (row["src"], row["dst"])
        else:
            name, values = row["k"], (row["n"],) if "n" in columns else ()
        if name in found:
            raise WrongError(f"{key} has {name} twice")
        found[name] = values
    return Table(columns, found)
