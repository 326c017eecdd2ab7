"""The changes of one commit against its first parent, in pages.

Order: nodes before edges, then by the identity of the type, then by id, then insert, update,
delete. A page ends when it has enough changes or bytes; its first change is always included,
however large. All pages together equal one unlimited page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from omnigraph.changes.diff import Boundary, ChangeGapError, TypeChanges, snapshot_changes
from omnigraph.changes.images import row_images
from omnigraph.changes.selection import Op, Selection
from omnigraph.changes.tokens import Position, decode, digest, encode, find_position, require
from omnigraph.changes.type_pairs import schema_changes
from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.manifest import GraphCommit, Snapshot
from omnigraph.manifest.errors import DatasetMissingError, VersionRemovedError
from omnigraph.manifest.history import History
from omnigraph.names import TableKey
from omnigraph.schema import EntityType, read_ir
from omnigraph.store.errors import DatasetVersionNotFoundError

PAGE_CHANGES_DEFAULT: Final = 1_000
PAGE_CHANGES_MAX: Final = 8_192
PAGE_BYTES: Final = 4 << 20
_IMAGES_AT_ONCE: Final = 256


class ParentlessCommitError(ConflictError):
    """The first commit of a graph has nothing to be compared with."""

    code = "OG-PARENTLESS"
    hint = "take the whole graph instead: `omnigraph export`"
    template = "commit {graph_commit_id} has no parent"
    graph_commit_id: str

    @property
    def details(self) -> dict[str, object]:
        """Why the difference was rejected."""
        refusal = {"reason": "parentless_commit", "graph_commit_id": self.graph_commit_id}
        return {"change_diff_refusal": refusal}


class PageLimitError(InvalidInputError):
    """The size of a page is zero, or larger than a page may be."""

    code = "OG-PAGE-LIMIT"
    hint = "ask for 1 to {limit}, and follow the page tokens"
    resource: str
    limit: int
    actual: int

    def _message(self) -> str:
        items = self.resource.rpartition("_")[2]
        return f"a page holds 1 to {self.limit} {items}, not {self.actual}"

    @property
    def details(self) -> dict[str, object]:
        """The limit, where it was exceeded."""
        if self.actual < self.limit:
            return {}
        limit = {"resource": self.resource, "limit": self.limit, "actual": self.actual}
        return {"resource_limit": limit}


def check_page(resource: str, *, limit: int, actual: int) -> None:
    """Reject an invalid page size; with empty pages a reader would never finish."""
    if not 1 <= actual <= limit:
        raise PageLimitError(resource, limit, actual)


@dataclass
class Budget:
    """How much a page may still hold."""

    changes: int
    bytes: int = PAGE_BYTES
    is_untouched: bool = True

    def take(self, change: dict[str, Any]) -> bool:
        """Reserve space for a change; false when the page is full."""
        size = len(json.dumps(change, ensure_ascii=False).encode())
        fits = self.changes > 0 and (size <= self.bytes or self.is_untouched)
        if fits:
            self.changes, self.bytes, self.is_untouched = self.changes - 1, self.bytes - size, False
        return fits


@dataclass(frozen=True)
class _Type:
    """The changes of one type, in their order."""

    changes: TypeChanges
    type_id: str
    items: tuple[tuple[str, Op, int], ...]
    """Id, operation, and the position among the rows of that operation."""

    @property
    def is_edge(self) -> bool:
        return TableKey(self.changes.pair.table_key).is_edge


def _typed(
    before: Snapshot, after: Snapshot, selection: Selection, boundary: Boundary
) -> tuple[_Type, ...]:
    """Find the changes between two snapshots and sort them."""
    found = [
        _Type(changes, type_identity(after, changes.pair.entity_type), _items(changes, selection))
        for changes in snapshot_changes(before, after, selection, boundary=boundary)
    ]
    return tuple(sorted(found, key=lambda one: (one.is_edge, one.type_id)))


def _items(changes: TypeChanges, selection: Selection) -> tuple[tuple[str, Op, int], ...]:
    items = [
        (entity_id, op, row)
        for op in Op
        if selection.takes_op(op)
        for row, entity_id in enumerate(changes.of(op).ids.to_pylist())
    ]
    return tuple(sorted(items, key=lambda item: (item[0].encode(), item[1].rank)))


def changes_between(
    before: Snapshot, after: Snapshot, selection: Selection
) -> Iterator[dict[str, Any]]:
    """Yield what differs between two snapshots, with the rows of both sides.

    Where the schemas differ, the first item is `{"schema_changes": [step]}`.
    """
    yield from schema_header(before, after)
    for one in _typed(before, after, selection, Boundary.OPEN):
        for start in range(0, len(one.items), _IMAGES_AT_ONCE):
            changes = _with_images(one, one.items[start : start + _IMAGES_AT_ONCE])
            yield from (change for _, change in changes)


def schema_header(before: Snapshot, after: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield what a list of changes begins with where the schemas differ."""
    steps = schema_changes(before, after)
    if steps:
        yield {"schema_changes": list(steps)}


class CommitDiff:
    """Everything that one commit changed, found once, returned from any position."""

    def __init__(
        self,
        history: History,
        commit: GraphCommit,
        selection: Selection,
        *,
        boundary: Boundary = Boundary.MATCHED,
    ) -> None:
        self.commit = commit
        self._boundary = boundary
        self._selection = selection
        self._history = history

    @cached_property
    def _snapshots(self) -> tuple[Snapshot, Snapshot]:
        parent = self.commit.parent_commit_id
        if parent is None:
            raise ParentlessCommitError(self.commit.graph_commit_id)
        before = self._history.snapshot_of_commit(parent)
        return before, self._history.snapshot_of_commit(self.commit.graph_commit_id)

    @cached_property
    def schema_changes(self) -> tuple[dict[str, Any], ...]:
        """The steps by which the commit changed the schema, for a reader who goes across them."""
        if self._boundary is Boundary.CLOSED:
            return ()
        with self._gaps():
            return schema_changes(*self._snapshots)

    @cached_property
    def _types(self) -> tuple[_Type, ...]:
        with self._gaps():
            return _typed(*self._snapshots, self._selection, self._boundary)

    @contextmanager
    def _gaps(self) -> Iterator[None]:
        """Turn versions that cleanup has removed into a gap of this commit.

        One that is open already may go as well, and is missed only when its rows are read.
        """
        try:
            yield
        except (VersionRemovedError, DatasetMissingError, DatasetVersionNotFoundError) as error:
            raise ChangeGapError(self.commit.graph_commit_id) from error

    def position(self, shape: object) -> Position:
        """Read the position in a token."""
        ids = {one.type_id: [(item[0], item[1]) for item in one.items] for one in self._types}
        return find_position(shape, ids)

    def changes(self, after: Position | None = None) -> Iterator[tuple[Position, dict[str, Any]]]:
        """Yield the changes after a position, each with its position."""
        types = list(self._types)
        if after is not None:
            first = next(n for n, one in enumerate(types) if one.type_id == after.type_id)
            types = types[first:]
        for number, one in enumerate(types):
            items = one.items
            if after is not None and number == 0:
                done = (after.entity_id, after.op)
                row = next(n for n, item in enumerate(items) if (item[0], item[1]) == done)
                items = items[row + 1 :]
            for start in range(0, len(items), _IMAGES_AT_ONCE):
                with self._gaps():
                    found = tuple(_with_images(one, items[start : start + _IMAGES_AT_ONCE]))
                yield from found


def _with_images(
    one: _Type, items: tuple[tuple[str, Op, int], ...]
) -> Iterator[tuple[Position, dict[str, Any]]]:
    changes = one.changes
    before = _images(one, items, is_before=True)
    after = _images(one, items, is_before=False)
    kind, name = TableKey(changes.pair.table_key).parts
    for entity_id, op, row in items:
        change: dict[str, Any] = {
            "kind": kind,
            "type": {"id": one.type_id, "name": name},
            "id": entity_id,
            "op": str(op),
        }
        if op is not Op.INSERT:
            change["before"] = before[op, row]
        if op is not Op.DELETE:
            change["after"] = after[op, row]
        yield Position(one.type_id, entity_id, op), change


def _images(
    one: _Type, items: tuple[tuple[str, Op, int], ...], *, is_before: bool
) -> dict[tuple[Op, int], dict[str, Any]]:
    changes = one.changes
    handle = changes.before if is_before else changes.after
    sides = changes.pair.sides
    entity_type = sides.before if is_before else sides.after
    shown = sides.names_before if is_before else {}
    if handle is None or entity_type is None:
        return {}
    images: dict[tuple[Op, int], dict[str, Any]] = {}
    for op in (Op.UPDATE, Op.DELETE) if is_before else (Op.INSERT, Op.UPDATE):
        rows_of_op = [row for _, item_op, row in items if item_op is op]
        if not rows_of_op:
            continue
        refs = changes.rows.updated_before if is_before and op is Op.UPDATE else changes.of(op)
        found = row_images(handle, refs.row_ids[rows_of_op], entity_type, shown)
        images |= {(op, row): image for row, image in zip(rows_of_op, found, strict=True)}
    return images


def type_identity(snapshot: Snapshot, entity_type: EntityType) -> str:
    """Return the opaque name of a type: it survives a rename, but not a drop and re-creation."""
    domain = read_ir(snapshot.schema.ir).schema_identity_domain
    numbers = (entity_type.type_id or 0, entity_type.table_incarnation_id or 0)
    content = b"\x1f".join([domain.encode(), *(struct.pack("<Q", number) for number in numbers)])
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def cause_of(commit: GraphCommit) -> dict[str, object]:
    """Return the JSON form of the commit that changes come from."""
    cause: dict[str, object] = {
        "graph_commit_id": commit.graph_commit_id,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "authored_branch": commit.graph_branch or "main",
        "actor_id": commit.actor_id,
        "authored_at": commit.created_at,
    }
    return {name: value for name, value in cause.items() if value is not None}


def block_header(
    cause: dict[str, object], schema_changes: tuple[dict[str, Any], ...]
) -> dict[str, object]:
    """Return what the changes of a commit begin with, in their JSON form."""
    steps: dict[str, object] = {"schema_changes": list(schema_changes)} if schema_changes else {}
    return {"cause": cause, **steps}


@dataclass(frozen=True)
class CommitPage:
    """One page of the changes of a commit."""

    cause: dict[str, object]
    changes: list[dict[str, Any]] = field(default_factory=list)
    next_page_token: str | None = None
    schema_changes: tuple[dict[str, Any], ...] = ()

    def header(self) -> dict[str, object]:
        """Return the JSON form without the changes."""
        return block_header(self.cause, self.schema_changes)

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        shape = self.header() | {"changes": self.changes}
        if self.next_page_token is not None:
            shape["next_page_token"] = self.next_page_token
        return shape


def commit_page(
    history: History,
    commit: GraphCommit,
    selection: Selection,
    *,
    graph: str,
    limit: int = PAGE_CHANGES_DEFAULT,
    page_token: str | None = None,
) -> CommitPage:
    """Return one page of the changes of a commit."""
    bound = {
        "graph": digest(graph),
        "commit": commit.graph_commit_id,
        "filter": selection.digest,
    }
    check_page("commit_changes_page_changes", limit=PAGE_CHANGES_MAX, actual=limit)
    diff = CommitDiff(history, commit, selection)
    after = None
    if page_token is not None:
        fields = decode(page_token, "commit-page")
        require(fields, bound)
        after = diff.position(fields.get("position"))
    changes: list[dict[str, Any]] = []
    budget, last = Budget(limit), after
    for position, change in diff.changes(after):
        if not budget.take(change):
            if last is None:
                raise ValueError("the first change of a page is always included")
            token = encode("commit-page", bound | {"position": last.to_json()})
            return CommitPage(cause_of(commit), changes, token, diff.schema_changes)
        changes.append(change)
        last = position
    return CommitPage(cause_of(commit), changes, schema_changes=diff.schema_changes)
