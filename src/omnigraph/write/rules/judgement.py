"""What the rules of one operation look at, and what they find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from omnigraph.manifest import Entry
from omnigraph.schema import Catalog
from omnigraph.write.rules.violations import ViolationLog
from omnigraph.write.stage.columns import Column
from omnigraph.write.stage.delta import GraphDelta, TableDelta, WriteMode
from omnigraph.write.stage.stored_rows import StoredRows

Operation = Literal["load", "mutation"]


@dataclass(frozen=True)
class Judgement:
    """One run of the rules: the change, the stored rows beside it, and the findings.

    `reads` gathers the published entries of tables that are not written and that the verdict
    rests on: when one of them moves before the commit, the verdict has to be given again.
    """

    delta: GraphDelta
    catalog: Catalog
    stored: StoredRows
    operation: Operation
    log: ViolationLog = field(default_factory=ViolationLog)
    reads: dict[str, Entry | None] = field(default_factory=dict)
    removed: dict[str, pa.Array] = field(default_factory=dict)
    """Ids that an overwrite takes away, by node table, once they were needed."""

    def of(self, table_key: str) -> TableDelta | None:
        """Return the change of a table, or None if it stays as it is."""
        delta = self.delta.tables.get(table_key)
        return None if delta is None or delta.is_empty else delta

    def is_overwritten(self, table_key: str) -> bool:
        """Whether none of a table's stored rows stay."""
        delta = self.of(table_key)
        return delta is not None and delta.mode is WriteMode.OVERWRITE

    def written_ids(self, table_key: str) -> Column:
        """Return the ids that a table gets or keeps by the change."""
        delta = self.of(table_key)
        return pa.array([], pa.utf8()) if delta is None else delta.rows["id"]

    def deleted_ids(self, table_key: str) -> Column:
        """Return the ids that go."""
        delta = self.of(table_key)
        return pa.array([], pa.utf8()) if delta is None else delta.deleted

    def rest_on(self, table_key: str) -> None:
        """Remember that the verdict rests on the stored rows of a table."""
        if self.of(table_key) is None:
            self.reads[table_key] = self.stored.entry(table_key)


def position_at(delta: TableDelta, row: int) -> int | None:
    """Return where a written row came from."""
    return None if delta.positions is None else delta.positions[row].as_py()
