"""One run of the rules over a change: what the rules look at, and what they find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from omnigraph.manifest import Entry
from omnigraph.schema import Catalog, EntityType
from omnigraph.write.rules.violations import ViolationLog
from omnigraph.write.stage.columns import Column
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from omnigraph.write.stage.stored_rows import StoredRows


@dataclass(frozen=True)
class RuleCheck:
    """The change, the stored rows that it is checked against, and the violations.

    `cascades` says that the change removes the stored edges of removed nodes itself, so that none
    is looked for. `reads` collects the published entries of tables that are not written and that
    the result depends on: when one of them moves before the commit, the rules run again.
    """

    delta: GraphDelta
    catalog: Catalog
    stored: StoredRows
    cascades: bool
    log: ViolationLog = field(default_factory=ViolationLog)
    reads: dict[str, Entry | None] = field(default_factory=dict)

    def of(self, table_key: str) -> TableDelta | None:
        """Return the change of a table, or None if it stays as it is."""
        delta = self.delta.tables.get(table_key)
        return None if delta is None or delta.is_empty else delta

    def written_ids(self, table_key: str) -> Column:
        """Return the ids of the rows that are written to a table."""
        delta = self.of(table_key)
        return pa.array([], pa.utf8()) if delta is None else delta.rows["id"]

    def removed_ids(self, table_key: str) -> Column:
        """Return the ids of the rows that are removed from a table."""
        delta = self.of(table_key)
        return pa.array([], pa.utf8()) if delta is None else delta.deleted

    def depend_on(self, table_key: str) -> None:
        """Record that the result depends on the stored rows of a table."""
        if self.of(table_key) is None:
            self.reads[table_key] = self.stored.entry(table_key)

    def against(self, stored: StoredRows) -> RuleCheck:
        """Return the check of the same change against other stored rows.

        They may hold edges that the change did not see and does not remove.
        """
        return replace(self, stored=stored, cascades=False, log=ViolationLog(), reads={})


Rule: TypeAlias = Callable[[EntityType, RuleCheck], None]
"""Checks the rows of one type, and adds what it finds to the log of the check."""


def types_by_name(catalog: Catalog) -> list[EntityType]:
    """Return all types in the order in which rules look at them."""
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    return sorted(entity_types, key=lambda entity_type: (entity_type.name, entity_type.table_key))
