"""What one version of `__manifest` says, folded out of its rows.

Invariants, checked when rows are read:

1. No object id appears twice; so no commit id is both published and voided.
2. There is exactly one `graph_head` row and exactly one `schema` row.
3. The head's `schema_hash` is the hash of the schema row.
4. Every live entry belongs to a registered table.
5. There is at least one commit: the genesis commit is in every version of every branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptError
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.commits import ACTING_COMMIT_START, GraphCommit
from omnigraph.manifest.rows import (
    GRAPH_COMMIT,
    GRAPH_HEAD,
    IDENTITY_COUNTER,
    SCHEMA,
    TABLE,
    TABLE_TOMBSTONE,
    TABLE_VERSION,
    TAG,
    VOIDED_COMMIT,
    AcceptedSchema,
    Entry,
    Head,
    Registration,
    Tag,
    seq_of,
)
from omnigraph.schema import Catalog
from omnigraph.store.records import ROW_ADDRESS, ROW_CREATED, ROW_ID

_COMMIT_COLUMNS: Final = ("object_id", "metadata", ROW_CREATED)
_CHUNKS_MAX: Final = 64
"""States follow each other by adding a chunk or two; more than this are combined into one."""


class CorruptManifestError(CorruptError):
    """`__manifest` breaks one of its invariants; nothing was changed."""

    code = "OG-MANIFEST-CORRUPT"
    hint = "keep the files; `omnigraph repair` says whether the version below can be put back"
    template = "{path} is corrupt at version {version}: {problem}"
    path: str
    version: int
    problem: str


@dataclass(frozen=True)
class LandedPublish:
    """What a publish has done to the state that it replaced.

    `gone` are the addresses of rows that were rewritten or removed; `rows` are the new ones with
    their virtual columns. A plain publish has changed nothing but the head, commits and entries.
    """

    version: int
    fragments: Mapping[int, str]
    gone: Sequence[int]
    rows: pa.Table
    head: Head
    entries: tuple[Entry, ...]
    is_plain: bool


@dataclass(frozen=True)
class KnownParts:
    """The parts of a state that were taken over from the one before; None: fold the rows."""

    head: Head | None = None
    fence: int | None = None
    entries: Mapping[str, Entry] | None = None
    schema: AcceptedSchema | None = None
    registrations: Mapping[str, Registration] | None = None
    tags: Mapping[str, Tag] | None = None


@dataclass(frozen=True)
class ManifestState:
    """One version of one manifest branch.

    `rows` holds every row with its virtual columns; the rest is derived from it on first use,
    unless it is among the `known` parts.
    """

    path: str
    version: int
    rows: pa.Table
    fragments: Mapping[int, str] = field(default_factory=dict)
    """Identity of every fragment that the rows came from, by number."""
    is_distinct: bool = False
    """Whether it is known already that no object id appears twice."""
    known: KnownParts = field(default=KnownParts(), repr=False)

    def __post_init__(self) -> None:
        if self.is_distinct:
            return
        ids = self.rows["object_id"]
        if pc.count_distinct(ids).as_py() != len(ids):
            raise self._corrupt(f"several rows have the object id {_repeated(ids)}")

    def followed_by(self, publish: LandedPublish) -> ManifestState:
        """Return the state that a publish on this one has made, without reading it.

        What the publish did not touch is carried over, so the cost does not grow with history.
        """
        addresses = self.rows[ROW_ADDRESS].to_numpy()
        is_kept = np.ones(len(addresses), np.bool_)
        for address in publish.gone:
            is_kept &= addresses != address
        rows = pa.concat_tables([*_runs(self.rows, is_kept), publish.rows])
        if rows["object_id"].num_chunks > _CHUNKS_MAX:
            rows = rows.combine_chunks()
        return ManifestState(
            self.path,
            publish.version,
            rows,
            publish.fragments,
            is_distinct=True,
            known=self._known_after(publish),
        )

    def _known_after(self, publish: LandedPublish) -> KnownParts:
        # No publish rewrites or removes a commit, so the fence is where it was.
        known = KnownParts(head=publish.head, fence=self.fence)
        if not publish.is_plain:
            return known
        entries = {**self.entries, **{entry.table_key: entry for entry in publish.entries}}
        cached = vars(self)
        return replace(
            known,
            entries=dict(sorted(entries.items())),
            schema=cached.get("schema"),
            registrations=cached.get("registrations"),
            tags=cached.get("tags"),
        )

    @cached_property
    def head(self) -> Head:
        """The branch's newest commit and schema hash."""
        if self.known.head is not None:
            return self.known.head
        with self._reading(GRAPH_HEAD):
            metadata = self._only(GRAPH_HEAD)
            return Head(metadata["commit_id"], metadata["schema_hash"])

    @cached_property
    def fence(self) -> int:
        """The fragment that every change of the manifest names: that of the genesis commit.

        Its row is never rewritten, so the fragment exists until it is compacted, and
        `omnigraph.manifest.compact` leaves it alone.
        """
        if self.known.fence is not None:
            return self.known.fence
        rows = self._of(GRAPH_COMMIT, columns=(ROW_CREATED, ROW_ADDRESS))
        if not rows.num_rows:
            raise self._corrupt("there is no commit")
        first = pc.index(rows[ROW_CREATED], pc.min(rows[ROW_CREATED])).as_py()
        return int(rows[ROW_ADDRESS][first].as_py()) >> 32

    @cached_property
    def schema(self) -> AcceptedSchema:
        """The accepted schema."""
        if self.known.schema is not None:
            return self.known.schema
        with self._reading(SCHEMA):
            metadata = self._only(SCHEMA)
            accepted = AcceptedSchema(metadata["source"], metadata["ir"], metadata["state"])
            schema_hash = accepted.schema_hash
        if schema_hash != self.head.schema_hash:
            raise self._corrupt("the head names another schema than the schema row holds")
        return accepted

    @cached_property
    def catalog(self) -> Catalog:
        """What the schema declares; states with equal schemas share one catalog."""
        return catalog_of(self.schema)

    @cached_property
    def registrations(self) -> Mapping[str, Registration]:
        """Registered tables by key."""
        if self.known.registrations is not None:
            return self.known.registrations
        with self._reading(TABLE):
            rows = [_registration(row) for row in self._of(TABLE).to_pylist()]
        return {row.table_key: row for row in rows}

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The published entry of every live table, by key in order."""
        if self.known.entries is not None:
            return self.known.entries
        gone: dict[str, int] = {}
        with self._reading(TABLE_TOMBSTONE):
            for row in self._of(TABLE_TOMBSTONE).to_pylist():
                key, seq = row["table_key"], seq_of(row["object_id"])
                gone[key] = max(seq, gone.get(key, 0))
        live = [e for e in self._winning_entries() if e.seq >= gone.get(e.table_key, 0)]
        for entry in live:
            if entry.table_key not in self.registrations:
                raise self._corrupt(f"{entry.table_key} is published and not registered")
        return {entry.table_key: entry for entry in sorted(live, key=lambda e: e.table_key)}

    @cached_property
    def tags(self) -> Mapping[str, Tag]:
        """Tags by name (only the manifest of `main` has any)."""
        if self.known.tags is not None:
            return self.known.tags
        with self._reading(TAG):
            rows = [_tag(row) for row in self._of(TAG).to_pylist()]
        return {tag.name: tag for tag in sorted(rows, key=lambda t: t.name)}

    @cached_property
    def identity_counter(self) -> int:
        """The next free number of a type, property or table (only that of `main` counts).

        0 where no number has been reserved yet.
        """
        with self._reading(IDENTITY_COUNTER):
            rows = self._of(IDENTITY_COUNTER, IDENTITY_COUNTER)
            return int(orjson.loads(rows["metadata"][0].as_py())["next"]) if len(rows) else 0

    def commits(self, *, limit: int | None = None, before: int | None = None) -> list[GraphCommit]:
        """Return commit records of this branch, newest first.

        `before` is a manifest version: only older commits count. Only what is returned is parsed.
        """
        rows = self._of(GRAPH_COMMIT, columns=_COMMIT_COLUMNS)
        if before is not None:
            rows = rows.filter(pc.less(rows[ROW_CREATED], before))
        newest_first = pc.sort_indices(rows[ROW_CREATED], sort_keys=[("", "descending")])
        return self._commits(rows.take(newest_first[:limit] if limit is not None else newest_first))

    def commits_at(self, versions: Sequence[int]) -> list[GraphCommit]:
        """Return the commits that appeared in these manifest versions."""
        rows = self._of(GRAPH_COMMIT, columns=_COMMIT_COLUMNS)
        return self._commits(
            rows.filter(pc.is_in(rows[ROW_CREATED], pa.array(versions, pa.uint64())))
        )

    def last_commit_until(self, created_at: int) -> GraphCommit | None:
        """Return the last commit made at or before a moment, in microseconds; ties by id."""
        until = [commit for commit in self.commits() if commit.created_at <= created_at]
        return max(until, key=lambda c: (c.created_at, c.graph_commit_id), default=None)

    def commit(self, commit_id: str) -> GraphCommit | None:
        """Return one commit record."""
        found = self._commits(self._of(GRAPH_COMMIT, commit_id))
        return found[0] if found else None

    @property
    def commit_ids(self) -> set[str]:
        """The ids of all commits, none of them parsed."""
        return set(self._of(GRAPH_COMMIT, columns=("object_id",))["object_id"].to_pylist())

    @property
    def acting_commit_ids(self) -> set[str]:
        """The ids of all commits that name an actor, none of them parsed."""
        rows = self._of(GRAPH_COMMIT, columns=("object_id", "metadata"))
        is_acting = pc.starts_with(rows["metadata"], ACTING_COMMIT_START)
        return set(rows.filter(is_acting)["object_id"].to_pylist())

    def commits_with_ids(self, commit_ids: Iterable[str]) -> list[GraphCommit]:
        """Return these commits, as far as this branch knows them."""
        wanted = pa.array(sorted(commit_ids), pa.utf8())
        if not len(wanted):
            return []
        rows = self._of(GRAPH_COMMIT, columns=_COMMIT_COLUMNS)
        return self._commits(rows.filter(pc.is_in(rows["object_id"], wanted)))

    def is_published(self, commit_id: str) -> bool:
        """Whether a commit with this id has been published on this branch."""
        return self.settled_as(commit_id) == GRAPH_COMMIT

    def is_voided(self, commit_id: str) -> bool:
        """Whether recovery has voided this id, so that its writer cannot publish it."""
        return self.settled_as(commit_id) == VOIDED_COMMIT

    def settled_as(self, commit_id: str) -> str | None:
        """Return what the row with this id is, if there is one; one pass over one column."""
        row = pc.index(self.rows["object_id"], commit_id).as_py()
        return None if row < 0 else str(self.rows["object_type"][row].as_py())

    def row_ids(self, object_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return row id and row address of those rows that exist, by object id."""
        names = self.rows["object_id"]
        is_wanted = pc.is_in(names, pa.array(object_ids, pa.utf8())).to_numpy()
        ids, addresses = self.rows[ROW_ID], self.rows[ROW_ADDRESS]
        # A few rows of many chunks: picking them one by one beats filtering every chunk.
        return {
            names[row].as_py(): (ids[row].as_py(), addresses[row].as_py())
            for row in np.flatnonzero(is_wanted).tolist()
        }

    def created_at(self, addresses: Sequence[int]) -> list[int]:
        """Return the manifest versions in which the rows at these addresses appeared."""
        known = self.rows[ROW_ADDRESS].to_numpy()
        created = self.rows[ROW_CREATED].to_numpy()
        return [int(v) for address in addresses for v in created[known == address]]

    def published_since(self, table_key: str, seq: int) -> list[int]:
        """Return the manifest versions after `seq` that published this table."""
        rows = self._of(TABLE_VERSION, columns=("object_id", "table_key", ROW_CREATED))
        rows = rows.filter(pc.equal(rows["table_key"], table_key))
        with self._reading(TABLE_VERSION):
            return [
                version
                for object_id, version in zip(
                    rows["object_id"].to_pylist(), rows[ROW_CREATED].to_pylist(), strict=True
                )
                if seq_of(object_id) > seq
            ]

    def entry_history(self) -> dict[str, list[tuple[int, Entry | None]]]:
        """Return, by table key, everything ever published: manifest version and entry, in order.

        None stands for the end of the type.
        """
        found: dict[str, list[tuple[int, Entry | None]]] = {}
        with self._reading(TABLE_VERSION):
            for row in self._of(TABLE_VERSION).to_pylist():
                found.setdefault(row["table_key"], []).append((row[ROW_CREATED], _entry(row)))
        with self._reading(TABLE_TOMBSTONE):
            for row in self._of(TABLE_TOMBSTONE).to_pylist():
                found.setdefault(row["table_key"], []).append((row[ROW_CREATED], None))
        for published in found.values():
            # A type that ends and begins anew in one publish is there afterwards.
            published.sort(key=lambda item: (item[0], item[1] is not None))
        return found

    def commit_of_rows(self, table_key: str, table_version: int) -> GraphCommit | None:
        """Return the commit that published the rows which one version of a table wrote.

        None where the retained history does not have it: compaction writes rows anew.
        """
        first: int | None = None
        for version, entry in reversed(self.entry_history().get(table_key, [])):
            if entry is None or entry.table_version < table_version:
                break
            first = version
        found = [] if first is None else self.commits_at([first])
        return next((commit for commit in found if not commit.is_maintenance), None)

    # -- reading rows -----------------------------------------------------------------------------

    def _of(
        self,
        object_type: str,
        object_id: str | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        mask = pc.equal(self.rows["object_type"], object_type)
        if object_id is not None:
            mask = pc.and_(mask, pc.equal(self.rows["object_id"], object_id))
        # Most of the bytes are metadata of commits: they are not copied to look at numbers.
        rows = self.rows if columns is None else self.rows.select(columns)
        return rows.filter(mask)

    def _only(self, object_type: str) -> dict[str, Any]:
        rows = self._of(object_type)
        if rows.num_rows != 1:
            raise self._corrupt(f"expected one {object_type} row, found {rows.num_rows}")
        metadata: dict[str, Any] = orjson.loads(rows["metadata"][0].as_py())
        return metadata

    def _winning_entries(self) -> list[Entry]:
        numbers = np.flatnonzero(pc.equal(self.rows["object_type"], TABLE_VERSION).to_numpy())
        if not len(numbers):
            return []
        with self._reading(TABLE_VERSION):
            rows = self._of(TABLE_VERSION, columns=("object_id", "table_key"))
            # The digits at the end of the id; looking for the bounds of characters takes longer.
            digits = pc.binary_slice(rows["object_id"].cast(pa.binary()), -20).cast(pa.utf8())
            seq = pc.cast(digits, pa.uint64()).to_numpy()
            keys = rows["table_key"].combine_chunks().dictionary_encode().indices.to_numpy()
            order = np.lexsort((seq, keys))
            is_last = np.append(keys[order][1:] != keys[order][:-1], True)
            is_winning = np.zeros(self.rows.num_rows, np.bool_)
            is_winning[numbers[order[is_last]]] = True
            # Taking rows by number would copy all of them first; a mask does not.
            return [_entry(row) for row in self.rows.filter(_mask(is_winning)).to_pylist()]

    def _commits(self, rows: pa.Table) -> list[GraphCommit]:
        with self._reading(GRAPH_COMMIT):
            return [
                GraphCommit.from_row(
                    row["object_id"], orjson.loads(row["metadata"]), row[ROW_CREATED]
                )
                for row in rows.select(_COMMIT_COLUMNS).to_pylist()
            ]

    @contextmanager
    def _reading(self, object_type: str) -> Iterator[None]:
        """Turn any error that a malformed row causes into the typed one."""
        try:
            yield
        except (KeyError, TypeError, ValueError) as error:
            raise self._corrupt(f"a {object_type} row is malformed ({error})") from error

    def _corrupt(self, problem: str) -> CorruptManifestError:
        return CorruptManifestError(self.path, self.version, problem)


def _runs(rows: pa.Table, is_kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[pa.Table]:
    """Return slices of the rows that stay, without copying."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_kept, [False]))))
    return [
        rows.slice(start, stop - start)
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    ]


def _mask(values: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.BooleanArray:
    """Return the values for Arrow; `pa.array` would load numpy.ma first, when a graph is opened."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _repeated(ids: pa.ChunkedArray) -> str:
    counts = pc.value_counts(ids).to_pylist()
    return str(next(count["values"] for count in counts if count["counts"] > 1))


def _registration(row: Mapping[str, Any]) -> Registration:
    metadata = orjson.loads(row["metadata"])
    return Registration(
        row["table_key"], row["location"], metadata["type_id"], metadata["table_incarnation_id"]
    )


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        table_key=row["table_key"],
        location=row["location"],
        table_branch=row["table_branch"],
        table_version=int(row["table_version"]),
        seq=seq_of(row["object_id"]),
        row_count=int(row["row_count"]),
        owner_branch=orjson.loads(row["metadata"])["owner"],
    )


def _tag(row: Mapping[str, Any]) -> Tag:
    metadata = orjson.loads(row["metadata"])
    name = row["object_id"].removeprefix("tag:")
    return Tag(
        name,
        metadata["commit_id"],
        metadata["created_at"],
        metadata["pin"],
        metadata["actor_id"],
    )
