"""The audit table of recoveries: one row per settled operation, for all branches."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import orjson
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.manifest.layout import RECOVERIES
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import DatasetExistsError, DatasetNotFoundError, StaleBaseError
from omnigraph.store.filters import Comparison
from omnigraph.store.records import DatasetVersion, ScanRequest
from omnigraph.values import PRIMARY_KEY

_ATTEMPTS_MAX: Final = 20

_SCHEMA: Final = pa.schema(
    [
        pa.field("operation_id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"}),
        pa.field("graph_commit_id", pa.utf8()),
        pa.field("recovery_kind", pa.utf8(), nullable=False),
        pa.field("recovery_for_actor", pa.utf8()),
        pa.field("sidecar_writer_kind", pa.utf8()),
        pa.field("per_table_outcomes", pa.utf8(), nullable=False),
        pa.field("transaction_ids", pa.list_(pa.field("item", pa.utf8()))),
        pa.field("created_at", pa.int64(), nullable=False),
    ]
)


class RecoveryKind(StrEnum):
    """How an operation was settled."""

    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"
    STRAY_PUT_BACK = "StrayPutBack"
    TORN_HEAD_REMOVED = "TornHeadRemoved"
    """A version that a power failure cut off; `operation_id` names the file, not a write."""
    MANIFEST_PUT_BACK = "ManifestPutBack"
    """An unusable newest version of `__manifest`; `repair` has restored the one below it."""


@dataclass(frozen=True)
class TableOutcome:
    """Where recovery found a table and which logical version it left."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True)
class RecoveryAuditRow:
    """One row of the audit table.

    `graph_commit_id` is the commit that settled the operation: its own when it was rolled forward,
    the recovery's when it was rolled back.
    """

    operation_id: str
    graph_commit_id: str | None
    recovery_kind: RecoveryKind
    recovery_for_actor: str | None
    sidecar_writer_kind: str | None
    per_table_outcomes: tuple[TableOutcome, ...]
    transaction_ids: tuple[str, ...]
    created_at: int


class RecoveryLog:
    """Reads and writes the audit table."""

    def __init__(self, datasets: DatasetStore) -> None:
        self._datasets = datasets

    def record(self, row: RecoveryAuditRow) -> None:
        """Add a row, unless the operation has one."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                if not self._datasets.exists(RECOVERIES):
                    staged = self._datasets.stage_create(RECOVERIES, _SCHEMA, rows=_table(row))
                elif self.find(row.operation_id) is not None:
                    return
                else:
                    head = self._datasets.head_version(RECOVERIES)
                    base = DatasetVersion(RECOVERIES, None, head)
                    staged = self._datasets.stage_append(base, _table(row))
                # Rows of other branches may land below.
                self._datasets.commit_staged(staged, exact=False)
            except (DatasetExistsError, StaleBaseError):
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
            else:
                return

    def rows(self) -> list[RecoveryAuditRow]:
        """Return all rows, newest first."""
        rows = [_record(row) for row in self._scan(ScanRequest())]
        return sorted(rows, key=lambda r: (r.created_at, r.operation_id), reverse=True)

    def find(self, operation_id: str) -> RecoveryAuditRow | None:
        """Return the row of one operation."""
        rows = self._scan(ScanRequest(row_filter=Comparison("operation_id", "=", operation_id)))
        return _record(rows[0]) if rows else None

    def settled_transactions(self) -> dict[str, str]:
        """Return the operation of every transaction id that recovery has settled."""
        return {uuid: row.operation_id for row in self.rows() for uuid in row.transaction_ids}

    def _scan(self, request: ScanRequest) -> list[dict[str, object]]:
        try:
            handle = self._datasets.open(RECOVERIES)
        except DatasetNotFoundError:
            return []
        rows: list[dict[str, object]] = handle.scan(request).read_all().to_pylist()
        return rows


def _table(row: RecoveryAuditRow) -> pa.Table:
    form = dict(vars(row))
    form["recovery_kind"] = row.recovery_kind.value
    form["per_table_outcomes"] = orjson.dumps([vars(o) for o in row.per_table_outcomes]).decode()
    form["transaction_ids"] = list(row.transaction_ids)
    return pa.Table.from_pylist([form], schema=_SCHEMA)


def _record(row: dict[str, object]) -> RecoveryAuditRow:
    outcomes = orjson.loads(str(row["per_table_outcomes"]))
    form = row | {
        "recovery_kind": RecoveryKind(str(row["recovery_kind"])),
        "per_table_outcomes": tuple(TableOutcome(**outcome) for outcome in outcomes),
        "transaction_ids": tuple(row["transaction_ids"] or ()),  # type: ignore[arg-type]  # a list of str by the schema
    }
    return RecoveryAuditRow(**form)  # type: ignore[arg-type]  # columns and fields have one list of names
