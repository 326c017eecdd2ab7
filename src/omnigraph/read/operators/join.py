"""Cross products."""

from __future__ import annotations

import numpy as np

from omnigraph.read.limits import Guard
from omnigraph.read.row_table import Entities, RowTable


def cross_join(guard: Guard, rows: RowTable, name: str, entities: Entities) -> RowTable:
    """Combine every row with every entity; the order of the rows is preserved."""
    count = len(entities.row_ids)
    guard.claim("a cross product", rows=rows.count * count, cells=rows.width + 1)
    if rows.count == 1 and not rows.entities:
        # The first scan of a pipeline: there is nothing to combine, and no copy is needed.
        return RowTable(count, {name: entities})
    left = np.repeat(np.arange(rows.count, dtype=np.intp), count)
    right = np.tile(entities.row_ids, rows.count)
    return rows.at(left).with_variable(name, Entities(entities.table_key, right))
