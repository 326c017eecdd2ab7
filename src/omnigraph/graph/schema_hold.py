"""A handle that is held to one accepted schema.

Whoever runs queries that were checked against one schema must not run them on another. A held
handle reads the newest snapshot that still has its schema, and refuses to write as soon as the
branch has moved to another one.

1. A schema changes only by a commit of `schema apply`. The parent of that commit is the newest
   snapshot with the schema before it, so every process that looks for it finds the same one.
2. A write compares the schema of the snapshot that it is prepared from, and its publish requires
   that the branch still has that schema. Nothing can come between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import chain

from omnigraph.manifest import Snapshot
from omnigraph.manifest.history import History
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.write.commit.committer import SchemaHeldError
from omnigraph.write.schema_apply import OPERATION


class SchemaHold:
    """The schema that a handle is held to. Safe to share between threads."""

    def __init__(self, schema_hash: str) -> None:
        self.schema_hash = schema_hash
        # Replaced as a whole: the head that was looked at, and the snapshot that was found for it.
        self._found: tuple[str, Snapshot] | None = None

    def newest(self, snapshot: Snapshot, history: History) -> Snapshot:
        """Return the snapshot itself, or the newest one before it that has the schema."""
        found = snapshot.state.head.schema_hash
        if found == self.schema_hash:
            return snapshot
        known = self._found
        if known is None or known[0] != snapshot.commit_id:
            known = snapshot.commit_id, self._find(snapshot, history)
            self._found = known
        return known[1]

    def _find(self, snapshot: Snapshot, history: History) -> Snapshot:
        for older in older_schemas(snapshot, history):
            if older.state.head.schema_hash == self.schema_hash:
                return older
        raise SchemaHeldError(self.schema_hash, snapshot.state.head.schema_hash)


def older_schemas(snapshot: Snapshot, history: History) -> Iterator[Snapshot]:
    """Yield the last snapshot of every earlier schema, the newest first."""
    for commit in snapshot.state.commits():
        if commit.operation == OPERATION and commit.parent_commit_id is not None:
            yield history.snapshot_of_commit(commit.parent_commit_id)


def find_schema(snapshot: Snapshot, history: History, digest: str) -> AcceptedSchema | None:
    """Return the newest schema whose text has this SHA-256; none if there was none."""
    for each in chain([snapshot], older_schemas(snapshot, history)):
        if sha256(each.schema.source.encode()).hexdigest() == digest:
            return each.schema
    return None
