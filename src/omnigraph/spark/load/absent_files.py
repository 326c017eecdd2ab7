"""Which properties staged rows do not name: side files of bits, read by row number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.write.load.rows.absent import AbsentMasks, PropertyBits
from omnigraph.write.stage.columns import Integers, Mask


def write_absent(
    files: SideFiles, entity_type: EntityType, parts: Sequence[tuple[AbsentMasks, int]]
) -> str:
    """Write what the rows of a task do not name; `parts` have their numbers of rows."""
    bits = PropertyBits.of(entity_type)
    packed = [bits.packed(absent, count) for absent, count in parts]
    words = [np.concatenate(column) for column in zip(*packed, strict=True)]
    names = [f"word{number}" for number in range(len(words))]
    return files.write(f"absent-{entity_type.table_key.replace(':', '-')}", pa.table(words, names))


@dataclass(frozen=True)
class AbsentFiles:
    """The files of the parts of a type, each with the number of its part's first row.

    Rows of parts without a file name everything.
    """

    parts: tuple[tuple[str, int], ...] = ()

    def masks(self, files: SideFiles, entity_type: EntityType, rows: Integers) -> dict[str, Mask]:
        """Return the masks of some rows, given by number in any order."""
        bits = PropertyBits.of(entity_type)
        words = tuple(np.zeros(len(rows), np.uint64) for _ in range(bits.width))
        for path, first in self.parts:
            table = files.read(path)
            own = np.flatnonzero((rows >= first) & (rows < first + table.num_rows))
            if len(own):
                picked = table.take(pa.array(rows[own] - first))
                for word, column in zip(words, picked.columns, strict=True):
                    word[own] = column.to_numpy()
        return bits.masks(words)
