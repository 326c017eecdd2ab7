"""Rows of a load that stand for stored rows, and have their ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.store.datasets import DatasetHandle
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.check.matches import Matches
from omnigraph.write.stage.columns import Integers, flat


@dataclass(frozen=True, eq=False)
class TakenIds:
    """Which rows stand for which stored rows; the ids themselves are read where they are needed."""

    matches: Matches
    handle: DatasetHandle

    def over(self, rows: Integers, ids: pa.Array) -> pa.Array:
        """Replace the ids of rows, given in ascending order, that stand for stored ones."""
        if not len(rows):
            return ids
        own = self.matches.between(int(rows[0]), int(rows[-1]) + 1)
        places = np.minimum(np.searchsorted(rows, own.rows), len(rows) - 1)
        hits = rows[places] == own.rows
        if not hits.any():
            return ids
        order = np.arange(len(rows))
        order[places[hits]] = len(rows) + np.arange(np.count_nonzero(hits))
        taken = stored_ids(self.handle, own.row_ids[hits]).cast(ids.type)
        return pa.concat_arrays([ids, taken]).take(pa.array(order))


def stored_ids(handle: DatasetHandle, row_ids: Hashes) -> pa.Array:
    """Return the ids of stored rows."""
    return flat(handle.take(pa.array(row_ids), columns=["id"])["id"])
