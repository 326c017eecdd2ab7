"""Whether a write may land: what it was prepared on must still hold in the state that it replaces.

`Requirements.unmet` is the only statement of this check. A publish raises what it returns; recovery
asks it whether the write of a dead process can still be published. The two must never disagree.

Requirements are checked in this order; the first one that does not hold is returned.

| requirement | holds when |
|---|---|
| `schema_hash` | the accepted schema has this hash |
| `identity_counter` | the counter of identities has this value; 0: it is not there yet |
| `merged_into` | this commit is the head |
| `expected_head` | this commit is the head, commits of pure maintenance not counted |
| `written` | each entry is the published one; None: the table is not published |
| `read` | the same, but a table that only maintenance has moved since counts as not moved |

A caller that can check its *read* tables again gives `revalidate` instead of failing on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.manifest.errors import (
    CounterMovedError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaMovedError,
)
from omnigraph.manifest.rows import Entry
from omnigraph.manifest.state import ManifestState

Revalidate = Callable[[ManifestState, frozenset[str]], None]
"""Checks an operation again whose *read* tables have moved; raises when it no longer holds."""


@dataclass(frozen=True)
class SchemaMoved:
    """Another schema has been accepted."""

    expected: str
    actual: str

    def error(self) -> SchemaMovedError:
        """Return the error to raise."""
        return SchemaMovedError(self.expected, self.actual)


@dataclass(frozen=True)
class CounterMoved:
    """Another process has reserved identities."""

    expected: int
    actual: int

    def error(self) -> CounterMovedError:
        """Return the error to raise."""
        return CounterMovedError(self.expected, self.actual)


@dataclass(frozen=True)
class HeadMoved:
    """Another commit is the head of the branch."""

    expected: str
    actual: str

    def error(self) -> PreconditionFailedError:
        """Return the error to raise."""
        return PreconditionFailedError(self.expected, self.actual)


@dataclass(frozen=True)
class TableMoved:
    """Another version of a table is published; version 0 stands for none."""

    table_key: str
    expected: int
    actual: int
    is_only_maintenance: bool

    def error(self) -> ExpectedVersionMismatchError:
        """Return the error to raise."""
        return ExpectedVersionMismatchError(
            self.table_key, self.expected, self.actual, self.is_only_maintenance
        )


@dataclass(frozen=True)
class ReadsMoved:
    """Tables that were only read have moved; everything else holds."""

    table_keys: frozenset[str]
    first: TableMoved

    def error(self) -> ExpectedVersionMismatchError:
        """Return the error to raise where the reads cannot be checked again."""
        return self.first.error()


Unmet = SchemaMoved | CounterMoved | HeadMoved | TableMoved | ReadsMoved
"""The first requirement that does not hold."""


@dataclass(frozen=True)
class Requirements:
    """What must still hold in the state that a publish replaces.

    `written` and `read` name the entries that the operation was prepared on; None is a table that
    must not exist. `expected_head` is a caller's precondition: commits of pure maintenance above it
    do not count. `merged_into` is the exact head that a merge was computed against. `revalidate`
    checks again what was read, when a table of `read` has moved.
    """

    schema_hash: str | None = None
    identity_counter: int | None = None
    written: Mapping[str, Entry | None] = field(default_factory=dict)
    read: Mapping[str, Entry | None] = field(default_factory=dict)
    expected_head: str | None = None
    merged_into: str | None = None
    revalidate: Revalidate | None = field(default=None, compare=False)

    def unmet(self, state: ManifestState) -> Unmet | None:
        """Return the first requirement that does not hold in this state."""
        head = state.head
        if self.schema_hash is not None and self.schema_hash != head.schema_hash:
            return SchemaMoved(self.schema_hash, head.schema_hash)
        # Finding the counter is a pass over all rows, which no other requirement needs.
        if self.identity_counter is not None and self.identity_counter != state.identity_counter:
            return CounterMoved(self.identity_counter, state.identity_counter)
        if self.merged_into is not None and self.merged_into != head.commit_id:
            return HeadMoved(self.merged_into, head.commit_id)
        if self.expected_head is not None and not is_head(state, self.expected_head):
            return HeadMoved(self.expected_head, head.commit_id)
        for key, expected in self.written.items():
            if not is_published_entry(state, key, expected):
                return _moved(state, key, expected)
        return self._moved_reads(state)

    def _moved_reads(self, state: ManifestState) -> ReadsMoved | None:
        keys = frozenset(
            key
            for key, expected in self.read.items()
            if not is_published_entry(state, key, expected)
            and not is_only_maintenance(state, key, expected)
        )
        if not keys:
            return None
        first = min(keys)
        return ReadsMoved(keys, _moved(state, first, self.read[first]))

    def require(self, state: ManifestState) -> None:
        """Raise unless every requirement holds, or `revalidate` accepts the moved reads."""
        unmet = self.unmet(state)
        if unmet is None:
            return
        if self.revalidate is None or not isinstance(unmet, ReadsMoved):
            raise unmet.error()
        self.revalidate(state, unmet.table_keys)


def is_published_entry(state: ManifestState, table_key: str, entry: Entry | None) -> bool:
    """Whether this very entry is the published one; None: the table is not published."""
    published = state.entries.get(table_key)
    if entry is None or published is None:
        return entry is published
    return entry.state == published.state


def is_only_maintenance(state: ManifestState, table_key: str, expected: Entry | None) -> bool:
    """Whether nothing but maintenance has published this table since `expected`."""
    if expected is None or table_key not in state.entries:
        return False
    since = state.published_since(table_key, expected.seq)
    commits = state.commits_at(since)
    return len(commits) == len(since) > 0 and all(commit.is_maintenance for commit in commits)


def is_head(state: ManifestState, commit_id: str) -> bool:
    """Whether a commit is the head of the branch, commits of pure maintenance not counted."""
    head = state.head.commit_id
    return commit_id == head or _content_commit(state, commit_id) == _content_commit(state, head)


def mismatch(
    state: ManifestState, table_key: str, expected: Entry | None
) -> ExpectedVersionMismatchError:
    """Return the error of a table that is not where it was expected."""
    return _moved(state, table_key, expected).error()


def _moved(state: ManifestState, table_key: str, expected: Entry | None) -> TableMoved:
    actual = state.entries.get(table_key)
    return TableMoved(
        table_key,
        expected.table_version if expected else 0,
        actual.table_version if actual else 0,
        is_only_maintenance(state, table_key, expected),
    )


def _content_commit(state: ManifestState, commit_id: str) -> str:
    """Return the nearest commit at or below this one that is not pure maintenance."""
    commit = state.commit(commit_id)
    while commit is not None and commit.is_maintenance and commit.parent_commit_id is not None:
        commit_id = commit.parent_commit_id
        commit = state.commit(commit_id)
    return commit_id
