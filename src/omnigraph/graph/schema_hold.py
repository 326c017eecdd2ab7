"""A handle that is held to one accepted schema of `main`.

Queries that were checked against one schema must not run on another. A held
handle reads the newest snapshot of `main` that still has its schema, and refuses to write to `main`
as soon as it has moved to another one. Other branches have schemas of their own, which no cluster
declares: they are read and written as they are.

1. A schema changes only by a commit of a schema apply, a merge or a revert. The parent of that
   commit is the newest snapshot with the schema before it, so every process that looks for it finds
   the same one.
2. A write compares the schema of the snapshot that it is prepared from, and its publish requires
   that the branch still has that schema. Nothing can come between the two.
3. A merge may change the numbers of a schema and nothing else, because types and properties of the
   source are the same as those of `main` (`also`). The text stays, and so does every query that was
   checked: a schema with the text of the held one is the held one.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import chain
from typing import Final

from omnigraph.errors import NotFoundError
from omnigraph.graph.late import committers
from omnigraph.manifest import Snapshot
from omnigraph.manifest.history import History
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.rows import AcceptedSchema

_SCHEMA_CHANGES: Final = ("schema_apply", "merge", "revert")
"""The operations of commits that may change a schema."""


class SchemaHold:
    """The schema that a handle is held to. Safe to share between threads."""

    def __init__(self, schema_hash: str, history: History) -> None:
        self.schema_hash = schema_hash
        self._history = history
        # Both are replaced, never changed: other threads read them.
        self._hashes = frozenset([schema_hash])
        """The held schema, and those that have its text."""
        self._found: tuple[str, Snapshot] | None = None
        """The commit that was the head, and the snapshot to read instead of it."""

    def has(self, schema_hash: str) -> bool:
        """Whether a schema that `main` has, or had, is the held one."""
        if schema_hash not in self._hashes:
            try:
                self.newest(self._history.snapshot(MAIN_INCARNATION))
            except committers.SchemaHeldError:
                return False
        return schema_hash in self._hashes

    def newest(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot itself, or the newest one before it that has the schema."""
        if snapshot.state.head.schema_hash in self._hashes:
            return snapshot
        known = self._found
        if known is None or known[0] != snapshot.commit_id:
            known = snapshot.commit_id, self._find(snapshot)
            self._found = known
            self._hashes |= {known[1].state.head.schema_hash}
        return known[1]

    def _find(self, snapshot: Snapshot) -> Snapshot:
        newer = [snapshot]
        for older in older_schemas(snapshot, self._history):
            newer.append(older)
            if older.state.head.schema_hash == self.schema_hash:
                text = older.schema.source
                return next(each for each in newer if each.schema.source == text)
        raise committers.SchemaHeldError(self.schema_hash, snapshot.state.head.schema_hash)


def older_schemas(snapshot: Snapshot, history: History) -> Iterator[Snapshot]:
    """Yield the last snapshot of every earlier schema, the newest first; some of them twice."""
    for commit in snapshot.state.commits():
        if commit.operation in _SCHEMA_CHANGES and commit.parent_commit_id is not None:
            try:
                older = history.snapshot_of_commit(commit.parent_commit_id)
            except NotFoundError:
                return  # A cleanup has removed it, and what is older.
            yield older


def find_schema(snapshot: Snapshot, history: History, digest: str) -> AcceptedSchema | None:
    """Return the newest schema whose text has this SHA-256; none if there was none."""
    for each in chain([snapshot], older_schemas(snapshot, history)):
        if sha256(each.schema.source.encode()).hexdigest() == digest:
            return each.schema
    return None
