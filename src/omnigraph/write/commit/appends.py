"""Appends that follow others: a prepared write is moved onto what was published meanwhile.

1. A write that only appends rows keeps its meaning after other appends whose claims are not its
   own (`write.rules.claims`). Its files stay as they are; only the transaction names a later
   version.
2. A table that it only reads may have been appended to as well: rows that were there still are.
3. Maintenance changes files and no row: what was prepared before it can follow it, whatever the
   rows claim.
4. Nothing is guessed: every step between what the write was prepared on and what is published
   must be an append or maintenance that this handle has published itself. Where a step is missing
   (another process, an update, too long ago), the write stays as it is, and its requirements say
   that it lost the race.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Entry
from omnigraph.recovery import WriterKind
from omnigraph.store.datasets import DatasetStore
from omnigraph.write.commit.job import Claim, TableWrite, WriteJob

MAINTENANCE: Final = frozenset({WriterKind.OPTIMIZE, WriterKind.ENSURE_INDICES})
"""Kinds of writes that change no row."""
_STEPS_MAX: Final = 1_024
"""How many appends are remembered; a write that is older is prepared again."""
_CLAIMS_MAX: Final = 50_000
"""How many claims of them are: a large append may claim thousands of ids and values."""

EntryState: TypeAlias = tuple[str, str | None, int, int]


@dataclass(frozen=True)
class AppendStep:
    """One append to one table: the entry that it made, and what its rows claim.

    Maintenance of a table is one that claims nothing.
    """

    entry: Entry
    claims: AbstractSet[Claim]


Steps: TypeAlias = Mapping[EntryState, AppendStep]
"""Appends by the state of the entry that each was made on."""


def steps_of(job: WriteJob, entries: Mapping[str, Entry]) -> dict[EntryState, AppendStep]:
    """Return the steps of a write that has made these entries; none if it may change stored rows.

    An entry of another version is not the one that the write has made: where recovery has published
    it, others may have written since.
    """
    made_by = ((table, entries.get(table.table_key)) for table in job.tables)
    return {
        table.expected.state: AppendStep(made, claims)
        for table, made in made_by
        if made is not None
        and table.expected is not None
        and (claims := _claims_of(job, table)) is not None
        and made.at == table.published().at
    }


def _claims_of(job: WriteJob, table: TableWrite) -> AbstractSet[Claim] | None:
    """Return what a write claims in a table; None if it is more than new rows."""
    if table.base is None or table.base.is_fork:
        return None
    if job.kind in MAINTENANCE:
        return frozenset()
    return job.claims[table.table_key] if job.claims is not None and table.can_move else None


class RecentAppends:
    """The last appends that one handle has published, on any branch."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._steps: OrderedDict[EntryState, AppendStep] = OrderedDict()
        self._claims = 0

    def note(self, job: WriteJob, entries: Mapping[str, Entry]) -> None:
        """Remember a published write."""
        with self._guard:
            for state, step in steps_of(job, entries).items():
                self._steps[state] = step
                self._claims += len(step.claims)
            while len(self._steps) > _STEPS_MAX or self._claims > _CLAIMS_MAX:
                _, oldest = self._steps.popitem(last=False)
                self._claims -= len(oldest.claims)

    def have_passed(self, job: WriteJob) -> bool:
        """Whether a write was prepared on an entry that one of them has replaced."""
        prepared_on = (*(table.expected for table in job.tables), *job.reads.values())
        with self._guard:
            return any(entry is not None and entry.state in self._steps for entry in prepared_on)

    def steps(self) -> dict[EntryState, AppendStep]:
        """Return what is remembered."""
        with self._guard:
            return dict(self._steps)


def moved_onto(
    job: WriteJob, entries: Mapping[str, Entry], steps: Steps, datasets: DatasetStore
) -> WriteJob:
    """Return the write as if it had been prepared on these entries, as far as known appends allow.

    What something else has moved stays as it is.
    """
    if job.claims is None:
        return job
    tables = tuple(_moved_table(job, table, entries, steps, datasets) for table in job.tables)
    reads = {key: _moved_read(entry, entries.get(key), steps) for key, entry in job.reads.items()}
    return replace(job, tables=tables, reads=reads)


def _moved_table(
    job: WriteJob,
    table: TableWrite,
    entries: Mapping[str, Entry],
    steps: Steps,
    datasets: DatasetStore,
) -> TableWrite:
    expected, current = table.expected, entries.get(table.table_key)
    if not table.can_move or expected is None or current is None or job.claims is None:
        return table
    between = _between(expected, current, steps)
    claims = job.claims[table.table_key]
    if not between or not all(claims.isdisjoint(step.claims) for step in between):
        return table
    return table.onto(current, datasets)


def _moved_read(expected: Entry | None, current: Entry | None, steps: Steps) -> Entry | None:
    if expected is None or current is None:
        return expected
    return current if _between(expected, current, steps) else expected


def _between(expected: Entry, current: Entry, steps: Steps) -> tuple[AppendStep, ...]:
    """Return the appends that lead from one entry to the other; empty if they are not known."""
    found = []
    for step in _following(expected, steps):
        found.append(step)
        if step.entry.state == current.state:
            return tuple(found)
    return ()


def _following(entry: Entry, steps: Steps) -> Iterator[AppendStep]:
    for _ in range(len(steps)):
        step = steps.get(entry.state)
        if step is None:
            return
        yield step
        entry = step.entry
