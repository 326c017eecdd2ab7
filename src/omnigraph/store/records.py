"""The records that packages, workers and processes exchange: frozen and picklable.

A staged record carries everything a later commit needs and nothing of the process that made it,
so a worker can write fragments, a driver can turn them into one transaction, and a third process
can commit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.store.filters import Filter

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader
"""Rows on their way to storage; a reader is consumed once and never held in memory."""

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
ROW_CREATED = "_row_created_at_version"
ROW_UPDATED = "_row_last_updated_at_version"
DISTANCE = "_distance"
SCORE = "_score"
VIRTUAL_COLUMNS: Final = frozenset({ROW_ID, ROW_ADDRESS, ROW_CREATED, ROW_UPDATED, DISTANCE, SCORE})
"""Columns that no dataset stores: a scan computes them."""


@dataclass(frozen=True, order=True)
class DatasetVersion:
    """One version of one lineage of one dataset: the exact thing a read or a write starts from."""

    location: str
    """Path of the dataset, relative to the store's root."""
    branch: str | None
    """Name of the dataset branch; `None` is the dataset's main lineage."""
    version: int

    @property
    def lineage(self) -> tuple[str, str | None]:
        """What all versions of one branch of a dataset have in common."""
        return self.location, self.branch


@dataclass(frozen=True)
class StagedFile:
    """A file that a staged transaction needs."""

    path: str
    """Relative to the store's root."""
    size: int | None
    """`None` when the writer of the file did not learn it; then only its existence is checked."""
    digest: str | None = None
    """The digest of its bytes (`store.digests`); None when they were not hashed yet."""
    copy_of: str | None = None
    """The file whose bytes it has, where it was made without reading them."""


@dataclass(frozen=True)
class RowCounts:
    """What a transaction does to rows."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class OperationKind(StrEnum):
    """What a dataset transaction does, as far as the packages above distinguish."""

    APPEND = "append"
    UPDATE = "update"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    CREATE_INDEX = "create_index"
    REWRITE = "rewrite"
    RESERVE = "reserve_fragments"
    RESTORE = "restore"
    MERGE = "merge"
    PROJECT = "project"
    METADATA = "metadata"
    CLONE = "clone"
    OTHER = "other"


@dataclass(frozen=True)
class StagedTransaction:
    """A prepared change of one dataset. Nothing of it is visible before `commit_staged`."""

    base: DatasetVersion
    uuid: str
    kind: OperationKind
    files: tuple[StagedFile, ...]
    counts: RowCounts
    payload: object = field(compare=False, repr=False)
    """The transaction in the adapter's own form, which can be pickled."""

    @property
    def intended_version(self) -> int:
        """The version that this transaction becomes unless another commit lands first."""
        return self.base.version + 1


@dataclass(frozen=True)
class CommittedRange:
    """The versions that one call has made: above `before`, up to and including `version`."""

    location: str
    branch: str | None
    before: int
    version: int
    uuid: str

    @property
    def at(self) -> DatasetVersion:
        """The newest of them."""
        return DatasetVersion(self.location, self.branch, self.version)


@dataclass(frozen=True)
class WrittenFragment:
    """Rows that a worker has written and that are not committed."""

    base: DatasetVersion
    rows: int
    keeps_row_ids: bool
    files: tuple[StagedFile, ...]
    payload: object = field(compare=False, repr=False)
    """The fragment in the adapter's own form, which can be pickled."""


@dataclass(frozen=True)
class ColumnSource:
    """Where the values of a column come from when a dataset gets other columns.

    A stored column of the same type is taken over without being read, under any name. One of
    another type is cast and written. Without a stored column every row has the value `fill`; null
    is not written at all.
    """

    stored: str | None
    fill: pa.Scalar | None = None


@dataclass(frozen=True)
class WrittenDeletion:
    """The deletion of exact rows of one fragment, written and not committed."""

    base: DatasetVersion
    fragment_id: int
    rows: int
    """How many rows this deletion removes, over those removed before."""
    empties_fragment: bool
    files: tuple[StagedFile, ...]
    payload: object = field(compare=False, repr=False)
    """What is left of the fragment in the adapter's own form; None when all of it is deleted."""


@dataclass(frozen=True, eq=False)
class LinkedRows:
    """What a version of a dataset has over another one that it comes from, found by row ids.

    Every row of `fragment_ids` was written since, or is new.
    """

    source: DatasetVersion
    target: DatasetVersion
    fragment_ids: tuple[int, ...]
    """Fragments of the source that the target does not have."""
    first_new_row_id: int
    """Rows of these fragments from this row id on are new; the others have replaced rows."""
    inserted: int
    updated: int
    deleted: pa.Array
    """Row ids of the rows of the target that the source does not have."""
    gone: tuple[int, ...]
    """Fragments of the target of which the source has no row."""
    trimmed: tuple[tuple[int, int], ...]
    """Fragments of the target of which the source has deleted rows, and its numbers for them."""


class IndexKind(StrEnum):
    """The index kinds that the engine uses."""

    BTREE = "BTREE"
    BITMAP = "BITMAP"
    INVERTED = "INVERTED"
    NGRAM = "NGRAM"
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_HNSW_SQ = "IVF_HNSW_SQ"


@dataclass(frozen=True)
class IndexSpec:
    """An index to build."""

    column: str
    kind: IndexKind
    name: str = ""
    """Empty: `<column>_idx`."""
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The name under which the index is stored."""
        return self.name or f"{self.column}_idx"


@dataclass(frozen=True)
class WrittenIndexSegment:
    """One built, uncommitted part of an index: it covers exactly `fragment_ids`."""

    base: DatasetVersion
    name: str
    uuid: str
    fragment_ids: tuple[int, ...]
    files: tuple[StagedFile, ...]
    payload: object = field(compare=False, repr=False)


@dataclass(frozen=True)
class IndexSegment:
    """One committed part of an index."""

    uuid: str
    fragment_ids: tuple[int, ...]
    """What the segment claims to cover, fragments that no longer exist included."""
    dataset_version: int


class FileKind(StrEnum):
    """What a file of a dataset holds."""

    ROWS = "rows"
    BLOBS = "blobs"
    DELETIONS = "deletions"
    INDEX = "index"
    VERSION = "version"
    TRANSACTION = "transaction"
    REF = "ref"


@dataclass(frozen=True)
class TornHead:
    """A newest version whose file was cut off before it was complete."""

    version: int
    path: str
    tag: str
    """Changes when another file takes the name."""


@dataclass(frozen=True)
class NeededFile:
    """A file that a version of a dataset refers to."""

    version: int
    path: str
    """Relative to the store's root; a branch also needs files of what it was cut from."""
    kind: FileKind


@dataclass(frozen=True)
class IndexInfo:
    """A committed index."""

    name: str
    kind: str
    """Upper case, as in `IndexKind`."""
    columns: tuple[str, ...]
    rows_covered: int
    segments: tuple[IndexSegment, ...]


@dataclass(frozen=True)
class FragmentInfo:
    """A fragment of a dataset version.

    Two versions hold the same rows in a fragment when `identity` is the same in both: the same ids
    at the same positions, and in all columns that both have the same values. Columns can be added
    to a fragment, dropped and replaced by wider ones (`stage_columns`), which leaves it the same.
    """

    fragment_id: int
    physical_rows: int
    deleted_rows: int
    data_bytes: int
    identity: str
    """Names the files by which the fragment's rows are fixed: that of the first column, with which
    the rows were written, and that of the deleted rows."""
    data_identity: str = ""
    """Names the first of them alone: equal in two versions that differ only in deleted rows."""
    files: tuple[str, ...] = ()
    """Names all files that the fragment needs, those of columns that were added later included."""

    @property
    def rows(self) -> int:
        """Live rows."""
        return self.physical_rows - self.deleted_rows


@dataclass(frozen=True)
class CompactionOptions:
    """Which fragments are worth rewriting."""

    target_rows: int = 1_000_000
    deleted_share_min: float = 0.1
    """Rewrite a fragment when at least this share of its rows is deleted."""


@dataclass(frozen=True)
class CompactionTask:
    """Fragments that one worker rewrites into fewer."""

    base: DatasetVersion
    fragment_ids: tuple[int, ...]
    payload: str


@dataclass(frozen=True)
class CompactionResult:
    """What a worker has rewritten and that is not committed."""

    base: DatasetVersion
    fragments_removed: int
    fragments_added: int
    files: tuple[StagedFile, ...]
    payload: str


@dataclass(frozen=True)
class TransactionInfo:
    """The transaction that made a version."""

    version: int
    uuid: str
    kind: OperationKind


@dataclass(frozen=True)
class VersionInfo:
    """One version of a lineage."""

    version: int
    created_us: int
    rows: int
    fragments: int


@dataclass(frozen=True)
class BranchInfo:
    """A dataset branch and the version that it was cut from."""

    name: str
    parent_branch: str | None
    parent_version: int


@dataclass(frozen=True)
class TagInfo:
    """A dataset tag: it keeps its version from being cleaned up."""

    name: str
    branch: str | None
    version: int


@dataclass(frozen=True)
class CleanupRequest:
    """Which old versions of one lineage to remove. The head and tagged versions always stay.

    Give `versions`, or `keep_versions` and/or `older_than_s`. Files that no version refers
    to are removed as well once they are seven days old.
    """

    keep_versions: int | None = None
    older_than_s: int | None = None
    versions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CleanupReport:
    """What a cleanup has removed, or would remove."""

    versions_removed: int
    bytes_removed: int
    files_removed: int


@dataclass(frozen=True)
class VectorSearch:
    """The `k` rows whose vectors are nearest to `query`."""

    column: str
    query: tuple[float, ...]
    k: int
    metric: Literal["l2", "cosine", "dot"] = "l2"
    use_index: bool = True
    refine_factor: int | None = None


@dataclass(frozen=True)
class TextSearch:
    """Rows whose text matches, with their BM25 score."""

    column: str
    query: str
    mode: Literal["any", "all", "phrase"] = "any"
    fuzziness: int = 0
    """How many letters a token may differ by. With more than 0 the query must hold tokens as an
    index stores them: see `analysed`."""
    covered_only: bool = False
    """Look only at rows that the full-text index covers."""


@dataclass(frozen=True)
class ScanRequest:
    """What to read from a dataset version."""

    columns: tuple[str, ...] | None = None
    """`None` reads every stored column; Lance's own columns may be named as well."""
    row_filter: Filter | None = None
    limit: int | None = None
    offset: int | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    fragment_ids: tuple[int, ...] | None = None
    """Read only these fragments."""
    row_ids: tuple[int, ...] | None = None
    """Look only at rows with these stable ids, before any search ranks them."""
    nearest: VectorSearch | None = None
    text: TextSearch | None = None
    batch_rows: int | None = None
    blobs_as_bytes: bool = False
    """Read blob columns whole instead of as descriptions."""
    use_scalar_indexes: bool = True
