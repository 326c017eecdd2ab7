"""Reading `__manifest`, with a cache of the newest states."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.manifest.errors import (
    BranchGoneError,
    GraphNotFoundError,
    TypeNotFoundError,
    VersionRemovedError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.rows import Entry, Head
from omnigraph.manifest.state import LandedPublish, ManifestState
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.errors import (
    CorruptObjectError,
    DatasetNotFoundError,
    DatasetVersionNotFoundError,
)
from omnigraph.store.filters import Comparison, Filter
from omnigraph.store.records import ROW_ADDRESS, ROW_CREATED, ROW_ID, ScanRequest

_CACHED_STATES_MAX: Final = 32
STATES_PER_BRANCH_MAX: Final = 4
"""A state holds the whole history of its branch: 32 of one branch would be most of the memory."""
_LOOKS_MAX: Final = 8
"""How often in a row a cleanup may remove the newest version before it is read."""
_PACKED_MEANWHILE_MAX: Final = 2
"""How often in a row files of a version may go into a pack while it is read."""
_COLUMNS: Final = (
    "object_id",
    "object_type",
    "location",
    "metadata",
    "table_key",
    "table_version",
    "table_branch",
    "row_count",
    ROW_CREATED,
)
_WHOLE: Final = ScanRequest(columns=_COLUMNS, with_row_id=True, with_row_address=True)


@dataclass(frozen=True)
class WrittenPublish:
    """The rows of a publish as they were staged, before they had addresses.

    `rewritten` carries the ids and the old addresses of its rows. Each of the two tables has become
    one fragment, in this order.
    """

    rewritten: pa.Table
    inserted: pa.Table | None
    removed: tuple[int, ...]
    head: Head
    entries: tuple[Entry, ...]
    is_plain: bool


def _landed(
    handle: DatasetHandle, base: ManifestState, publish: WrittenPublish
) -> LandedPublish | None:
    """Return where the rows of a publish are; None when that cannot be derived."""
    if not base.fragments:
        return None
    tables = [table for table in (publish.rewritten, publish.inserted) if table is not None]
    old = publish.rewritten[ROW_ADDRESS].to_pylist()
    # The publish is the only change since `base`: fragments that it has not touched are as before.
    touched = {address >> 32 for address in (*old, *publish.removed)}
    newest = max(base.fragments)
    changed = handle.fragments(lambda number: number > newest or number in touched)
    fragments = {number: name for number, name in base.fragments.items() if number not in touched}
    fragments |= {info.fragment_id: info.identity for info in changed}
    homes = sorted(fragments.keys() - base.fragments.keys())
    if len(homes) != len(tables):
        return None
    row_ids = [handle.row_ids(home) for home in homes]
    created = base.created_at(old)
    if (
        not row_ids[0].equals(publish.rewritten[ROW_ID].combine_chunks())
        or [len(ids) for ids in row_ids] != [table.num_rows for table in tables]
        or len(created) != len(old)
    ):
        return None
    version, schema = handle.at.version, base.rows.schema
    rows = []
    for table, home, ids in zip(tables, homes, row_ids, strict=True):
        count, first = table.num_rows, home << 32
        appeared = created if table is publish.rewritten else [version] * count
        virtual = {
            ROW_CREATED: pa.array(appeared, pa.uint64()),
            ROW_ID: ids,
            ROW_ADDRESS: pa.array(range(first, first + count), pa.uint64()),
        }
        columns = [virtual[name] if name in virtual else table[name] for name in schema.names]
        rows.append(pa.Table.from_arrays(columns, schema=schema))
    return LandedPublish(
        version=version,
        fragments=fragments,
        gone=(*old, *publish.removed),
        # The next publish removes the rewritten rows again. At the end of the table, removing them
        # splits no other run of rows.
        rows=pa.concat_tables(reversed(rows)),
        head=publish.head,
        entries=publish.entries,
        is_plain=publish.is_plain,
    )


def _read_through_packing(read: Callable[[], ManifestState]) -> ManifestState:
    """Read a version, again when files of it have gone into a pack while it was read."""
    for _ in range(_PACKED_MEANWHILE_MAX):
        with suppress(CorruptObjectError):
            return read()
    return read()


class ManifestReader:
    """Manifest states by branch and version. A version never changes, so states are shared."""

    def __init__(self, *, root: str, datasets: DatasetStore) -> None:
        self._root = root
        self._datasets = datasets
        self._states: OrderedDict[tuple[str, int], ManifestState] = OrderedDict()
        self._guard = threading.Lock()

    def latest(self, incarnation: Incarnation) -> ManifestState:
        """Return the newest state of a branch: one probe, and a read only when it has moved.

        Between the two others may publish and a cleanup may remove what was the newest version.
        """
        for _ in range(_LOOKS_MAX):
            version = self.head_version(incarnation)
            try:
                return self.at(incarnation, version)
            except VersionRemovedError as error:
                if error.head == version:
                    raise
        return self.at(incarnation, self.head_version(incarnation))

    def head_version(self, incarnation: Incarnation) -> int:
        """Return the newest manifest version of a branch.

        The branch's ref is looked at first: of a deleted branch files may be left, because
        deleting them failed or a late writer made them.
        """
        lance_branch = incarnation.lance_branch
        if lance_branch is not None and not self._datasets.has_branch(MANIFEST, lance_branch):
            raise BranchGoneError(incarnation.text)
        try:
            return self._datasets.head_version(MANIFEST, branch=lance_branch)
        except DatasetNotFoundError as error:
            raise self._missing(incarnation) from error

    def at(self, incarnation: Incarnation, version: int) -> ManifestState:
        """Return the state at one version of one branch."""
        key = (incarnation.text, version)
        with self._guard:
            cached = self._states.get(key)
            if cached is not None:
                self._states.move_to_end(key)
                return cached
        known = self._nearest(incarnation, version)
        try:
            state = _read_through_packing(
                lambda: self._read_from(known, self.open(incarnation, version))
            )
        except DatasetNotFoundError as error:
            # The branch was deleted while its rows were read.
            raise self._missing(incarnation) from error
        self._keep(incarnation, state)
        return state

    def take_over(
        self,
        incarnation: Incarnation,
        base: ManifestState,
        version: int,
        publish: WrittenPublish,
    ) -> None:
        """Remember what a publish on `base` has made, so that it need not be read.

        If anything is not as expected, the next reader reads it.
        """
        handle = self.open(incarnation, version)
        landed = _landed(handle, base, publish)
        if landed is not None:
            self._keep(incarnation, base.followed_by(landed))

    def _keep(self, incarnation: Incarnation, state: ManifestState) -> None:
        with self._guard:
            self._states[incarnation.text, state.version] = state
            of_branch = [key for key in self._states if key[0] == incarnation.text]
            for key in of_branch[:-STATES_PER_BRANCH_MAX]:
                del self._states[key]
            while len(self._states) > _CACHED_STATES_MAX:
                self._states.popitem(last=False)

    def table_at(self, incarnation: Incarnation, version: int, table_key: str) -> Entry:
        """Return the entry of one table at one version, without reading the whole manifest."""
        with self._guard:
            state = self._states.get((incarnation.text, version))
        if state is None:
            of_table = Comparison("table_key", "=", table_key)
            state = _read_through_packing(
                lambda: self._read(self.open(incarnation, version), of_table)
            )
        entry = state.entries.get(table_key)
        if entry is None:
            raise TypeNotFoundError(table_key, version)
        return entry

    def open(self, incarnation: Incarnation, version: int) -> DatasetHandle:
        """Open the manifest dataset itself."""
        try:
            return self._datasets.open(MANIFEST, branch=incarnation.lance_branch, version=version)
        except DatasetVersionNotFoundError as error:
            what = f"the manifest of branch '{incarnation.branch}'"
            raise VersionRemovedError(what, version, error.head) from error
        except DatasetNotFoundError as error:
            raise self._missing(incarnation) from error

    def _nearest(self, incarnation: Incarnation, version: int) -> ManifestState | None:
        """Return the newest known state of the branch below a version."""
        with self._guard:
            known = [
                state
                for (name, at), state in self._states.items()
                if name == incarnation.text and at < version
            ]
        return max(known, key=lambda state: state.version, default=None)

    def _read_from(self, known: ManifestState | None, handle: DatasetHandle) -> ManifestState:
        """Read a version, taking over what an older state has of fragments that are the same.

        A publish changes two or three fragments of a manifest that may have dozens, so this is
        what keeps a write from reading all of it again.
        """
        fragments = {info.fragment_id: info.identity for info in handle.fragments()}
        same = [
            number
            for number, identity in fragments.items()
            if known is not None and known.fragments.get(number) == identity
        ]
        fresh_ids = tuple(fragments.keys() - set(same))
        fresh = handle.scan(replace(_WHOLE, fragment_ids=fresh_ids)).read_all()
        if known is None or not same:
            rows = fresh
        else:
            home = known.rows[ROW_ADDRESS].to_numpy() >> np.uint64(32)
            kept = known.rows.filter(pa.array(np.isin(home, np.array(same, np.uint64))))
            rows = pa.concat_tables([kept, fresh.select(kept.column_names)]).combine_chunks()
        return ManifestState(self._path, handle.at.version, rows, fragments)

    def _read(self, handle: DatasetHandle, row_filter: Filter | None = None) -> ManifestState:
        rows = handle.scan(replace(_WHOLE, row_filter=row_filter)).read_all()
        return ManifestState(self._path, handle.at.version, rows)

    @property
    def _path(self) -> str:
        return f"{self._root}/{MANIFEST}"

    def _missing(self, incarnation: Incarnation) -> BranchGoneError | GraphNotFoundError:
        if incarnation == MAIN_INCARNATION:
            return GraphNotFoundError(self._root)
        return BranchGoneError(incarnation.text)
