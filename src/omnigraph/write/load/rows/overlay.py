"""Other values for some rows of a load, laid over the rows as they were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.write.load.rows.spool import Spool
from omnigraph.write.stage.columns import Integers


def put(column: pa.Array, rows: Integers, values: pa.Array) -> pa.Array:
    """Replace the values of some rows."""
    places = np.arange(len(column))
    places[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, values]).take(pa.array(places))


@dataclass(frozen=True, eq=False)
class Overlay:
    """Some columns of some rows, given by number in ascending order."""

    rows: Integers
    names: tuple[str, ...]
    values: Spool

    def over(
        self, batches: Iterator[tuple[int, pa.RecordBatch]], columns: Sequence[str] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Replace what the overlay has in batches that come in their order."""
        names = self.names if columns is None else [n for n in self.names if n in columns]
        if not names:
            yield from batches
            return
        waiting = _Reading(self.values.batches(names))
        for start, batch in batches:
            low, high = np.searchsorted(self.rows, (start, start + batch.num_rows))
            if high > low:
                values = waiting.take(int(high - low))
                yield start, _laid(batch, self.rows[low:high] - start, values)
            else:
                yield start, batch


class _Reading:
    """Reads batches in pieces of any size."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.Table:
        pieces: list[pa.RecordBatch] = []
        while count:
            if self._left is None or not self._left.num_rows:
                self._left = next(self._batches)
            pieces.append(self._left.slice(0, count))
            self._left = self._left.slice(len(pieces[-1]))
            count -= len(pieces[-1])
        return pa.Table.from_batches(pieces).combine_chunks()


def _laid(batch: pa.RecordBatch, rows: Integers, values: pa.Table) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in values.column_names:
        own = columns[name]
        columns[name] = put(own, rows, values[name].combine_chunks().cast(own.type))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
