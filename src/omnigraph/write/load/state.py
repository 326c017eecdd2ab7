"""One load from its start to its result: its input, its rows so far, and what was staged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph.clock import Clock
from omnigraph.lineage import Lineage, TypeCounts, type_names
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey
from omnigraph.progress import Progress
from omnigraph.schema import Catalog
from omnigraph.write.load.check.load_check import LoadCheck
from omnigraph.write.load.input.interfaces import LoadInput
from omnigraph.write.load.match_edges import matched_types
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.partial import with_stored_members
from omnigraph.write.load.result import LoadCounts, Seconds
from omnigraph.write.load.rows.intake import Intake
from omnigraph.write.load.rows.row_parts import TableBases
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.load.stage import StagedTable
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stored_rows import StoredRows

_SHOWN: Final = {
    "read": "reading",
    "validate": "checking",
    "write": "writing",
    "commit": "committing",
}
"""What a progress calls the phases."""


class PhaseTimer:
    """Adds up the seconds of the phases of a load, and shows which one runs."""

    def __init__(self, clock: Clock, progress: Progress) -> None:
        self._clock = clock
        self._progress = progress
        self.seconds = Seconds()

    @contextmanager
    def phase(self, name: str, records: Callable[[], int] | None = None) -> Iterator[None]:
        """Count the time inside as one phase; `records` says how many records it has read."""
        start = self._clock.monotonic_s()

        def known() -> Mapping[str, int]:
            return {} if records is None else {"records": records()}

        try:
            with self._progress.stage(_SHOWN[name], known):
                yield
        finally:
            self._add(name, self._clock.monotonic_s() - start)

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count some of the time of one phase as another's."""
        self._add(source, -seconds)
        self._add(target, seconds)

    def _add(self, name: str, seconds: float) -> None:
        before: float = getattr(self.seconds, name)
        self.seconds = replace(self.seconds, **{name: before + seconds})


@dataclass
class LoadState:
    """One running load."""

    source: LoadInput
    options: LoadOptions
    catalog: Catalog
    intake: Intake
    bases: TableBases
    budget: SpoolBudget
    timer: PhaseTimer
    run_id: str = ""
    """What the lineage calls this load, unless its job has a run of its own."""
    runtime: Mapping[str, str] = field(default_factory=dict)
    """The engine, for the lineage."""
    staged: dict[str, StagedTable] = field(default_factory=dict)
    """What the last attempt staged, by table."""
    types: Mapping[str, LoadedType] = field(default_factory=dict)
    """The rows that the last attempt checked, those that stand for stored edges matched."""

    @property
    def is_repeatable(self) -> bool:
        """Whether the load means the same on a newer state."""
        return self.options.mode is not WriteMode.OVERWRITE

    def check(self, snapshot: Snapshot) -> LoadCheck:
        """Return the rules across rows, to be run against a snapshot."""
        stored = StoredRows(snapshot)
        self.types = matched_types(self.intake.types, stored, self.options)
        return self._check(stored)

    def check_again(self, snapshot: Snapshot) -> LoadCheck:
        """Return the rules for the rows of the last check, to be run against a newer snapshot."""
        stored = StoredRows(snapshot)
        if self.types.keys() != self.intake.types.keys():
            # The last check was a proof without rows; they were gathered since. The tables that
            # they go to are the same in both snapshots.
            self.types = matched_types(self.intake.types, stored, self.options)
        return self._check(stored)

    def _check(self, stored: StoredRows) -> LoadCheck:
        types = self.types
        if self.options.keeps_absent:
            types = {key: with_stored_members(loaded, stored) for key, loaded in types.items()}
        return LoadCheck(types, self.catalog, self.options, self.source, stored)

    def removed(self) -> dict[str, int]:
        """Return how many stored edges of each type are removed with their nodes."""
        return {
            TableKey(key).type_name: staged.removed
            for key, staged in self.staged.items()
            if staged.removed and key not in self.intake.records_read
        }

    @property
    def awaits_terms(self) -> bool:
        """Whether the commit may be prepared again on a newer head, if its terms hold there."""
        return self.options.terms is not None and self.options.expected_head is None

    def counts(self, key: str) -> LoadCounts:
        """Return what the load did to one type."""
        staged = self.staged.get(key, StagedTable(None))
        quarantine = self.intake.quarantine
        loaded = self.intake.types.get(key)
        return LoadCounts(
            loaded=self.intake.records_read[key],
            inserted=staged.inserted,
            updated=staged.updated,
            unchanged=staged.unchanged,
            rejected=0 if quarantine is None else quarantine.counts[key],
            deleted=staged.removed,
            nulled=staged.nulled,
            superseded=loaded.superseded if loaded is not None else 0,
            warnings=tuple(self._warnings(key)),
        )

    def _warnings(self, key: str) -> Iterator[str]:
        nameless = self.intake.nameless[key]
        if self.options.matches_edges and nameless:
            records = "record has" if nameless == 1 else "records have"
            yield f"{nameless} {records} neither a key nor an id: a second load adds them again"

    def lineage(self, snapshot: Snapshot) -> Lineage:
        """Return what the commit of the last attempt says of this load."""
        names = type_names({*self.intake.records_read, *self.staged})
        return Lineage(
            job=self.options.job.of_run(self.run_id),
            inputs=self.options.described.with_rows(self.intake.records_read),
            outputs=tuple(self._type_counts(key, name, snapshot) for key, name in names.items()),
            columns=self.options.described.columns,
            engine=self.runtime,
        )

    def _type_counts(self, key: str, name: str, snapshot: Snapshot) -> TypeCounts:
        counts, staged = self.counts(key), self.staged.get(key, StagedTable(None))
        is_replaced = self.options.mode is WriteMode.OVERWRITE and not staged.removed
        return TypeCounts(
            name,
            inserted=counts.inserted,
            updated=counts.updated,
            deleted=snapshot.entry(key).row_count if is_replaced else staged.removed,
            unchanged=counts.unchanged,
            rejected=counts.rejected,
            is_edge=TableKey(key).is_edge,
        )
