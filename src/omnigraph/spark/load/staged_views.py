"""Reading what was staged: a version of each table that no head names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.spark.load.run import STORED_ROWS_PER_TASK
from omnigraph.spark.load.stored_tasks import Slice, StagedFragments
from omnigraph.store.records import ScanRequest

if TYPE_CHECKING:
    from omnigraph.spark.load.staged import StagedType
    from omnigraph.store.datasets import DatasetHandle, DatasetStore
    from omnigraph.store.records import DatasetVersion


class StagedViews:
    """Opens the staged rows of types, each once; `close` removes what that has made."""

    def __init__(
        self, datasets: DatasetStore, bases: Mapping[str, DatasetVersion], *, replaces: bool
    ) -> None:
        self._datasets = datasets
        self._bases = bases
        self._replaces = replaces
        self._known: dict[str, tuple[StagedFragments, DatasetHandle]] = {}
        self._outdated: list[DatasetVersion] = []

    def handle(self, staged: StagedType) -> DatasetHandle:
        """Open the version that has the staged rows."""
        return self._opened(staged)[1]

    def rows(self, staged: StagedType) -> StagedFragments:
        """Return the fragments that have the rows of a type."""
        return self._opened(staged)[0]

    def read(self, staged: StagedType, columns: tuple[str, ...]) -> pa.Table:
        """Read columns of all rows of a type; only for few rows."""
        numbers = self.rows(staged).fragment_ids
        request = ScanRequest(columns=columns, fragment_ids=numbers)
        return self.handle(staged).scan(request).read_all()

    def slices(self, staged: StagedType) -> list[Slice]:
        """Divide the rows of a type among tasks."""
        if not staged.rows:
            return []
        found = self.rows(staged)
        groups: list[list[int]] = [[]]
        for number, first in zip(found.fragment_ids, found.first_rows, strict=True):
            if groups[-1] and first // STORED_ROWS_PER_TASK >= len(groups):
                groups.append([])
            groups[-1].append(number)
        return [Slice(staged.table_key, found.at, tuple(group)) for group in groups]

    def forget(self, table_key: str) -> None:
        """Open a type anew when it is asked for: more rows were staged."""
        known = self._known.pop(table_key, None)
        if known is not None:
            self._outdated.append(known[0].at)

    def close(self) -> None:
        """Remove the views."""
        for at in (*self._outdated, *(rows.at for rows, _ in self._known.values())):
            self._datasets.discard_staged_view(at)
        self._known.clear()
        self._outdated.clear()

    def _opened(self, staged: StagedType) -> tuple[StagedFragments, DatasetHandle]:
        key = staged.table_key
        if key not in self._known:
            self._known[key] = self._open(staged)
        return self._known[key]

    def _open(self, staged: StagedType) -> tuple[StagedFragments, DatasetHandle]:
        base = self._bases[staged.table_key]
        fragments = [fragment for part in staged.parts for fragment in part.fragments]
        if self._replaces:
            schema = staged.entity_type.arrow_schema
            transaction = self._datasets.stage_overwrite(base, schema, fragments=fragments)
        else:
            transaction = self._datasets.stage_append(base, fragments=fragments)
        handle = self._datasets.open_staged(transaction)
        numbers = [info.fragment_id for info in handle.fragments()]
        # New fragments get the next numbers, in the order in which they are given.
        own = sorted(numbers)[len(numbers) - len(fragments) :]
        counts = np.array([fragment.rows for fragment in fragments], np.int64)
        firsts = np.cumsum(counts) - counts
        return StagedFragments(handle.at, tuple(own), tuple(firsts.tolist())), handle
