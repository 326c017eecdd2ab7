"""A generated social network as parquet files, for the bulk part of the story."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CITIES: Final = ("Oslo", "Rome", "Lima", "Cairo", "Kyoto", "Quito", "Accra", "Perth")
EDGES_PER_NODE: Final = 5
_SEED: Final = 7
_ROW_GROUP: Final = 250_000

SCHEMA: Final = """\
node Person {
    name: String @key
    city: String
    age: I32
    @range(age, 0..130)
}
edge Knows: Person -> Person { since: I32 }
"""


def write_people(folder: Path, edges: int) -> tuple[Path, Path]:
    """Write so many edges between a fifth as many people; degrees follow a power law."""
    folder.mkdir(parents=True, exist_ok=True)
    count = max(2, edges // EDGES_PER_NODE)
    random = np.random.default_rng(_SEED)
    names = pa.array(np.char.mod("p%08d", np.arange(count)))
    people = pa.table(
        {
            "name": names,
            "city": pa.array(CITIES).take(pa.array(random.integers(0, len(CITIES), count))),
            "age": random.integers(18, 90, count).astype(np.int32),
        }
    )
    ends = np.minimum((count * random.power(0.35, 2 * edges)).astype(np.int64), count - 1)
    knows = pa.table(
        {
            "src": names.take(pa.array(ends[:edges])),
            "dst": names.take(pa.array(ends[edges:])),
            "since": random.integers(1990, 2026, edges).astype(np.int32),
        }
    )
    paths = folder / "people.parquet", folder / "knows.parquet"
    for path, table in zip(paths, (people, knows), strict=True):
        pq.write_table(table, path, row_group_size=_ROW_GROUP)
    return paths
