"""The receiving end of a load: checks every batch row by row, and keeps the rows by type."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.clock import Clock
from omnigraph.manifest import Snapshot
from omnigraph.schema import EdgeType, EntityType, NodeType
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.write.embed.row_embedder import RowEmbedder
from omnigraph.write.load.check.hashing import HashScheme
from omnigraph.write.load.options import LoadOptions, NullCells
from omnigraph.write.load.rows.absent import with_made
from omnigraph.write.load.rows.check_rows import (
    CheckedRows,
    ColumnBatch,
    RowRules,
    check_rows,
)
from omnigraph.write.load.rows.id_spellings import Spellings, remap_ends, remaps_of
from omnigraph.write.load.rows.quarantine import Quarantine, graph_records
from omnigraph.write.load.rows.row_parts import Destination, TableBases
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.violations import (
    JSON_REST_RULE,
    InputName,
    Violation,
    ViolationLog,
    position_in,
)
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.stored_rows import StoredRows

_UNLIMITED: Final = 1 << 62


class Intake:
    """Takes what a source reads (`LoadSink`), and keeps it until the load is over."""

    def __init__(
        self,
        options: LoadOptions,
        snapshot: Snapshot,
        *,
        bases: TableBases,
        budget: SpoolBudget,
        clock: Clock,
        external_blobs: ExternalBlobs,
        place: str,
        embedder: RowEmbedder | None = None,
    ) -> None:
        self._options = options
        self._snapshot = snapshot
        self._bases = bases
        self._budget = budget
        self._clock = clock
        self._external_blobs = external_blobs
        self._place = place
        self._embedder = embedder
        self._stored = StoredRows(snapshot)
        self._hasher = HashScheme(clock.uuid())
        self._rules: dict[str, RowRules] = {}
        self._refused: dict[int, tuple[object, list[Violation]]] = {}
        self._batch_start = 0
        self._spellings: dict[str, Spellings] = {}
        self.types: dict[str, LoadedType] = {}
        self.inputs: list[InputName] = []
        self.log = ViolationLog()
        self.quarantine = None if options.quarantine is None else Quarantine(options.quarantine)
        self.records_read: Counter[str] = Counter()
        self.nameless: Counter[str] = Counter()
        """How many nodes of each type have neither a key nor an id of the input."""
        self.bad_records = 0
        self.has_bad_input = False
        self.checking_s = 0.0

    # -- what a source hands over -----------------------------------------------------------------

    def begin(self, name: str | None, place: str | None = None) -> int:
        """Start the next input, and return its first position."""
        self.inputs.append(InputName(name, place))
        return position_in(len(self.inputs) - 1, 1)

    def add(self, entity_type: EntityType, batch: ColumnBatch) -> None:
        """Check rows of one type and keep the good ones."""
        start = self._clock.monotonic_s()
        self.records_read[entity_type.table_key] += len(batch.positions)
        checked = check_rows(self._rules_of(entity_type), batch, self._clock)
        self.log.absorb(checked.log)
        if isinstance(entity_type, NodeType):
            self.nameless[entity_type.table_key] += checked.made_count
        loaded = self._type(entity_type)
        if checked.bad.any():
            self._reject_batch(entity_type, batch, checked)
        if checked.spellings is not None:
            self._spellings.setdefault(entity_type.table_key, []).append(checked.spellings)
        loaded.add(self._embedded(entity_type, checked))
        self.checking_s += self._clock.monotonic_s() - start

    def _embedded(self, entity_type: EntityType, checked: CheckedRows) -> CheckedRows:
        """Fill the vectors that `@embed` asks for."""
        if (
            self._embedder is None
            or not isinstance(entity_type, NodeType)
            or not entity_type.embed_sources
        ):
            return checked
        if self._options.is_dry_run:
            # Vectors cost money, and a dry run would throw them away.
            return checked
        rows = pa.Table.from_batches([checked.rows])
        filled = self._embedder.fill(entity_type, rows, self._stored, checked.absent)
        made = next(iter(filled.combine_chunks().to_batches()), checked.rows)
        absent = self._embedder.unnamed(entity_type, checked.absent)
        return replace(checked, rows=made, absent=with_made(entity_type, made, absent))

    def refuse(self, violation: Violation, record: object) -> None:
        """Note a record that is no row."""
        self.log.add(violation)
        if violation.position is None or violation.rule == JSON_REST_RULE:
            # Not one record is wrong but a whole input, or all that is left of it.
            self.has_bad_input = True
        else:
            known = self._refused.setdefault(violation.position, (record, []))
            known[1].append(violation)

    def end_batch(self) -> None:
        """Count and quarantine the refused records; stop when there are too many."""
        self.log.sort_from(self._batch_start)
        self._batch_start = len(self.log.kept)
        self.bad_records += len(self._refused)
        for record, violations in self._refused.values():
            self._quarantine(None, record, violations)
        self._refused.clear()
        self.require_tolerable()

    def end_type(self, entity_type: EntityType) -> None:
        """Finish the rows of a type, so that its writer frees its memory before the next begins."""
        loaded = self.types.get(entity_type.table_key)
        if loaded is not None:
            loaded.finish()
            self._budget.release_memory()

    # -- afterwards -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Finish the rows of every type, and rewrite ends that use another spelling of an id."""
        self.end_batch()
        for loaded in self.types.values():
            loaded.finish()
        remaps = remaps_of(self.types, self._spellings)
        for key, loaded in list(self.types.items()):
            if remaps and isinstance(loaded.entity_type, EdgeType):
                self.types[key], rows, violations = remap_ends(loaded, remaps)
                self.log.extend(violations)
                by_row = {int(row): [found] for row, found in zip(rows, violations, strict=True)}
                self.reject_rows(self.types[key], by_row)

    def close(self) -> None:
        """Release files and threads."""
        for loaded in self.types.values():
            loaded.close()
        if self.quarantine is not None:
            self.quarantine.close()

    def require_tolerable(self) -> None:
        """Raise when there are more bad records than the caller tolerates."""
        limit = self._options.max_errors
        if limit is not None and self.bad_records > limit:
            self.log.require_clean(self._place, self.inputs)

    def reject_rows(self, loaded: LoadedType, rows: dict[int, list[Violation]]) -> None:
        """Reject rows that break rules, and write them to the quarantine."""
        numbers = np.array(sorted(rows), np.int64)
        loaded.reject(numbers)
        self.bad_records += len(numbers)
        if self.quarantine is None or not len(numbers):
            return
        picked = loaded.pick(numbers, loaded.destination.schema.names)
        made = None
        if isinstance(loaded.entity_type, EdgeType):
            made = loaded.made_rows()[numbers]
        records = graph_records(loaded.entity_type, picked, loaded.absent.take(numbers), made)
        positions = loaded.positions(numbers)
        for row, record, position in zip(numbers.tolist(), records, positions, strict=True):
            found = [replace(violation, position=position) for violation in rows[row]]
            self._quarantine(loaded.entity_type, record, found)

    # -- details ----------------------------------------------------------------------------------

    def _reject_batch(
        self, entity_type: EntityType, batch: ColumnBatch, checked: CheckedRows
    ) -> None:
        rows = np.flatnonzero(checked.bad).tolist()
        self.bad_records += len(rows)
        if self.quarantine is None:
            return
        by_position: dict[int, list[Violation]] = {}
        for violation in checked.log.kept:
            by_position.setdefault(violation.position or 0, []).append(violation)
        for row in rows:
            violations = by_position[batch.positions[row].as_py()]
            self._quarantine(entity_type, batch.record(row), violations)

    def _quarantine(
        self, entity_type: EntityType | None, record: object, violations: list[Violation]
    ) -> None:
        if self.quarantine is not None:
            located = [violation.located(self.inputs) for violation in violations]
            self.quarantine.add(entity_type, record, located)

    def _rules_of(self, entity_type: EntityType) -> RowRules:
        if entity_type.table_key not in self._rules:
            rules = RowRules(
                entity_type,
                self._options.conversion,
                self._external_blobs,
                copies_external=self._options.mode is not WriteMode.OVERWRITE,
                keeps_absent=self._options.tracks_absent,
                null_cells_are_absent=self._options.null_cells is NullCells.KEEP,
            )
            if self._embedder is not None and isinstance(entity_type, NodeType):
                rules = replace(rules, filled=self._embedder.targets(entity_type))
            if self.quarantine is not None:
                rules = replace(rules, violations_max=_UNLIMITED)
            self._rules[entity_type.table_key] = rules
        return self._rules[entity_type.table_key]

    def _type(self, entity_type: EntityType) -> LoadedType:
        if entity_type.table_key not in self.types:
            destination = Destination(
                self._bases,
                self._snapshot.entry(entity_type.table_key),
                entity_type.arrow_schema,
                is_overwrite=self._options.mode is WriteMode.OVERWRITE,
            )
            # Ends that use another spelling are rewritten when all nodes are known. Edges that may
            # stand for stored ones are written once it is known which of them are new.
            is_final = self._options.conversion is ConversionMode.STRICT and not (
                self._options.matches_edges and destination.entry.row_count
            )
            self.types[entity_type.table_key] = LoadedType(
                entity_type,
                destination,
                self._hasher,
                self._budget,
                may_stream=self.quarantine is None
                and not self._options.is_dry_run
                and (is_final or not isinstance(entity_type, EdgeType)),
                is_merge=self._options.mode is WriteMode.MERGE,
            )
        return self.types[entity_type.table_key]
