"""Which hashes occur twice, among many sorted runs, within bounded memory.

Runs are mapped files sorted by `hash`. They are looked at range by range of the hashes, so that
what is in memory at a time is bounded however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.spark.load.key_set import HashRange, ranges
from omnigraph.write.load.check.hashing import Hashes, is_among
from omnigraph.write.stage.columns import Integers

HASHES_MAX: Final = 1 << 23
"""About how many hashes are in memory together."""


def hash_ranges(*kinds: Sequence[pa.Table], hashes_max: int = HASHES_MAX) -> tuple[HashRange, ...]:
    """Divide the hashes so that the runs have about `hashes_max` in each range."""
    total = sum(run.num_rows for runs in kinds for run in runs)
    return ranges(max(1, -(-total // hashes_max)))


def repeated(runs: Sequence[pa.Table], within: HashRange) -> Hashes:
    """Return the hashes of a range that occur more than once, sorted."""
    hashes = _sorted(runs, within)
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def common(runs: Sequence[pa.Table], others: Sequence[pa.Table], within: HashRange) -> Hashes:
    """Return the hashes of a range that occur in runs of both kinds, sorted."""
    ours, theirs = _sorted(runs, within), _sorted(others, within)
    if len(ours) > len(theirs):
        ours, theirs = theirs, ours
    return np.unique(ours[is_among(ours, theirs)])


def counted(
    runs: Sequence[pa.Table], within: HashRange, column: str = "count"
) -> tuple[Hashes, Integers]:
    """Add up a column over equal hashes in a range; hashes come sorted."""
    parts = [within.slice_of(run) for run in runs]
    hashes = np.concatenate([part["hash"].to_numpy() for part in parts] or [_nothing()])
    counts = np.concatenate([part[column].to_numpy() for part in parts] or [np.zeros(0, np.int64)])
    distinct, places = np.unique(hashes, return_inverse=True)
    return distinct, np.bincount(places, weights=counts, minlength=len(distinct)).astype(np.int64)


def _sorted(runs: Sequence[pa.Table], within: HashRange) -> Hashes:
    parts = [within.slice_of(run)["hash"].to_numpy() for run in runs]
    if len(parts) == 1:
        only: Hashes = parts[0]
        return only
    # A stable sort is quick on a sequence of sorted pieces.
    return np.sort(np.concatenate(parts or [_nothing()]), kind="stable")


def _nothing() -> Hashes:
    return np.zeros(0, np.uint64)
