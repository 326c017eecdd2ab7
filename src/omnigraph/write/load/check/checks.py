"""The rules across rows of a load: keys, `@unique`, ends of edges, `@card`, ids that exist already.

1. The rules compare hashes of all rows, and texts only where hashes are equal: rows that share no
   hash share no tuple.
2. Hashes that exceed the memory budget are compared part by part (`hashes.py`).
3. Stored rows are found by an index for a few values, by one pass over the needed columns for many.
4. Order: type by type in name order key, `@unique`, ends, `@card`; then ids that exist already.
   Violations of one rule are reported in the order of the rows.
5. A finding names the row to reject so that the rule holds again, where there is one: of two rows
   with one tuple the later, of too many edges those that came last, of too few all that are
   written.
6. The result holds as long as the tables do not change. The commit itself requires that of written
   tables; the others that the result rests on are `reads`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.manifest import Entry
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EdgeType, EntityType, NodeType
from omnigraph.schema.values.ids import spell
from omnigraph.write.load.check.cardinality import check_cardinality
from omnigraph.write.load.check.endpoints import check_ends, check_orphans
from omnigraph.write.load.check.findings import (
    Findings,
    FirstRows,
    LoadScope,
    live_rows,
)
from omnigraph.write.load.check.hashes import HashPart, StoredHashes
from omnigraph.write.load.check.hashing import NO_HASH, Hashes, distinct_hashes, is_among
from omnigraph.write.load.check.repeats import folds, repeats
from omnigraph.write.load.input.interfaces import LoadInput
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules import codes
from omnigraph.write.rules.endpoints import edge_ends
from omnigraph.write.rules.unique import lead_member, matching_rows, unique_violation
from omnigraph.write.rules.violations import VIOLATIONS_MAX, KeyConflict, Violation
from omnigraph.write.stage.columns import Integers, flat
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

_CONFIRMED_ROWS: Final = 1 << 18


class LoadCheck:
    """One run of the rules over all types of a load, against one snapshot."""

    def __init__(
        self,
        types: Mapping[str, LoadedType],
        catalog: Catalog,
        options: LoadOptions,
        source: LoadInput,
        stored: StoredRows,
    ) -> None:
        self._types = types
        self._catalog = catalog
        self._options = options
        self._source = source
        self._stored = stored
        self._scope = LoadScope(types, options, source, stored)
        self.findings = self._scope.findings
        self.reads: dict[str, Entry | None] = self._scope.reads
        """The tables that the result rests on and the load does not write."""

    def run(self) -> Findings:
        """Check everything."""
        for entity_type in _by_name(self._catalog):
            loaded = self._types.get(entity_type.table_key)
            if loaded is not None:
                self._check_repeated_ids(loaded)
                for number in range(len(loaded.tuples)):
                    self._check_apart(loaded, number)
                    self._check_stored_tuples(loaded, number)
            if isinstance(entity_type, EdgeType):
                if loaded is not None:
                    check_ends(entity_type, loaded, self._scope)
                check_orphans(entity_type, self._scope)
                if loaded is not None:
                    check_cardinality(entity_type, loaded, self._scope)
        if self._options.mode is WriteMode.APPEND:
            for entity_type in _by_name(self._catalog):
                loaded = self._types.get(entity_type.table_key)
                if loaded is not None:
                    self._check_stored_ids(loaded)
        self._scope.forget()
        return self.findings

    def run_again(self, moved: frozenset[str]) -> Findings:
        """Check the rules that rest on tables which have moved."""
        for entity_type in _by_name(self._catalog):
            if not isinstance(entity_type, EdgeType):
                continue
            loaded = self._types.get(entity_type.table_key)
            if loaded is not None and any(
                TableKey.node(name) in moved for _, name in edge_ends(entity_type)
            ):
                check_ends(entity_type, loaded, self._scope)
            if entity_type.table_key in moved:
                check_orphans(entity_type, self._scope)
        self._scope.forget()
        return self.findings

    # -- ids --------------------------------------------------------------------------------------

    def _check_repeated_ids(self, loaded: LoadedType) -> None:
        if (
            loaded.id_start is None
            or not loaded.has_given_ids
            or folds(loaded, self._options, self._source)
        ):
            return
        found = FirstRows(self.findings.wanted, width=2)
        for again in repeats(loaded, loaded.ids, ("id",), counted=loaded.live):
            found.add(again.rows, again.first)
        if not found.total:
            return
        if loaded.is_keyed and isinstance(loaded.entity_type, NodeType):
            self._add_tuples(loaded, loaded.entity_type.key, found, rule="key")
        else:
            rows, first = found.columns()
            self._add_conflicts(loaded, rows, total=found.total, first_rows=first)

    def _check_stored_ids(self, loaded: LoadedType) -> None:
        if loaded.id_start is None or not loaded.has_given_ids:
            return
        if not self._stored.row_count(loaded.table_key):
            return
        hits = FirstRows(max(self.findings.wanted, VIOLATIONS_MAX))
        if loaded.live_count <= PROBES_MAX:
            rows = live_rows(loaded, loaded.id_start)
            hits.add(self._confirmed(loaded, rows))
        else:
            ids = StoredHashes(
                self._stored, loaded.table_key, "id", scheme=loaded.hasher, budget=loaded.budget
            )
            for _, found in loaded.lookup().joined(ids):
                rows = np.unique(found[found >= 0])
                for start in range(0, len(rows), _CONFIRMED_ROWS):
                    hits.add(self._confirmed(loaded, rows[start : start + _CONFIRMED_ROWS]))
            ids.forget_buckets()
        if hits.total:
            self._add_conflicts(loaded, hits.rows(), total=hits.total, first_rows=None)

    def _confirmed(self, loaded: LoadedType, rows: Integers) -> Integers:
        """Return the rows whose ids are stored, compared as texts."""
        ids = loaded.pick(rows, ("id",))["id"]
        return rows[self._stored.contains(loaded.table_key, ids)]

    def _add_conflicts(
        self, loaded: LoadedType, rows: Integers, *, total: int, first_rows: Integers | None
    ) -> None:
        """Add ids that cannot be inserted."""
        is_stored = first_rows is None
        findings = self.findings
        kind = "node" if isinstance(loaded.entity_type, NodeType) else "edge"
        shown = rows if self._options.quarantines else rows[: findings.conflicts.room]
        ids = loaded.pick(shown, ("id",))["id"].to_pylist()
        positions = loaded.positions(shown)
        firsts = None if first_rows is None else loaded.positions(first_rows[: len(shown)])
        for n, (row, entity_id) in enumerate(zip(shown.tolist(), ids, strict=True)):
            conflict = KeyConflict(kind, loaded.entity_type.name, entity_id, is_stored=is_stored)
            where = "" if firsts is None else self._scope.both(firsts[n], positions[n])
            violation = Violation(
                position=positions[n],
                type=loaded.entity_type.name,
                property="id",
                value=entity_id,
                rule="key_conflict",
                code=codes.KEY_CONFLICT,
                message=conflict.text + where,
            )
            if self._options.quarantines:
                findings.add(loaded, row, violation)
            else:
                findings.first_conflict = findings.first_conflict or conflict
                findings.conflicts.add(violation)
        if not self._options.quarantines:
            findings.conflicts.count("key_conflict", total - len(shown))

    # -- unique -----------------------------------------------------------------------------------

    def _check_apart(self, loaded: LoadedType, number: int) -> None:
        """Check the records of the input among each other, even two of one id."""
        counted = loaded.live if self._options.keeps_last else loaded.records
        members = loaded.tuples[number]
        found = FirstRows(self.findings.wanted, width=2)
        for again in repeats(loaded, loaded.unique[number], members, counted=counted):
            found.add(again.rows, again.first)
        if found.total:
            self._add_tuples(loaded, members, found, rule="unique")

    def _add_tuples(
        self, loaded: LoadedType, members: tuple[str, ...], found: FirstRows, *, rule: str
    ) -> None:
        """Add rows whose tuples earlier rows have."""
        log = self.findings
        again, first = found.columns()
        both = np.unique(np.concatenate([again, first]))
        rows = loaded.pick(both, tuple(dict.fromkeys(("id", *members))))
        spelled = _spelled(rows, members)
        ids = rows["id"].to_pylist()
        positions, firsts = loaded.positions(again), loaded.positions(first)
        places = np.searchsorted(both, again).tolist(), np.searchsorted(both, first).tolist()
        for n, (row, holder) in enumerate(zip(*places, strict=True)):
            violation = unique_violation(
                loaded.entity_type,
                members,
                [texts[row] for texts in spelled],
                held_by=(ids[holder], ids[row]),
                position=positions[n],
                rule=rule,
                where=self._scope.both(firsts[n], positions[n]),
            )
            log.add(loaded, int(again[n]), violation)
        log.count(rule, found.total - len(again))

    def _check_stored_tuples(self, loaded: LoadedType, number: int) -> None:
        """Check written rows against stored ones that stay."""
        key = loaded.table_key
        if self._scope.is_overwritten(key) or not self._stored.row_count(key):
            return
        found: list[tuple[int, Violation]] = []
        total = 0
        for part in loaded.unique[number].parts(loaded.live):
            total += self._add_held(loaded, loaded.tuples[number], part, found)
        wanted = self.findings.wanted
        for row, violation in sorted(found, key=lambda one: one[0])[:wanted]:
            self.findings.add(loaded, row, violation)
        self.findings.count("unique", total - min(wanted, total))

    def _add_held(
        self,
        loaded: LoadedType,
        members: tuple[str, ...],
        part: HashPart,
        violations: list[tuple[int, Violation]],
    ) -> int:
        """Find rows whose tuples stored rows have; return how many there are."""
        ordered = part.distinct()
        holders = self._holders(loaded, members, ordered) if len(ordered) else None
        if holders is None or not holders.num_rows:
            return 0
        held = distinct_hashes(loaded.tuple_hashes(holders, members))
        hits = [rows[is_among(hashes, held) & (hashes != NO_HASH)] for hashes, rows in part.slabs()]
        rows = np.sort(np.concatenate(hits))
        picked = loaded.pick(rows, tuple(dict.fromkeys(("id", *members))))
        pairs = matching_rows(members, picked, holders)
        spelled = _spelled(picked, members) if pairs else []
        holder_ids, ids = holders["id"].to_pylist(), picked["id"].to_pylist()
        shown = pairs[: self.findings.wanted]
        positions = loaded.positions(rows[[row for row, _ in shown]]) if shown else []
        for (row, holder), position in zip(shown, positions, strict=True):
            violation = unique_violation(
                loaded.entity_type,
                members,
                [texts[row] for texts in spelled],
                held_by=(holder_ids[holder], ids[row]),
                position=position,
                rule="unique",
            )
            violations.append((int(rows[row]), violation))
        return len(pairs)

    def _holders(self, loaded: LoadedType, members: tuple[str, ...], ordered: Hashes) -> pa.Table:
        """Read the stored rows that stay and may share a tuple with a written row."""
        columns = tuple(dict.fromkeys(("id", *members)))
        parts = []
        for slab, numbers in self._holder_slabs(loaded, members, columns):
            hit = is_among(loaded.tuple_hashes(slab, members), ordered)
            if not hit.any():
                continue
            found = slab.filter(pa.array(hit))
            if numbers is None:
                pairs = loaded.hasher.pairs(flat(found["id"]))
                written = loaded.lookup().rows_of(pairs) >= 0
            else:
                written = self._scope.is_written(loaded, found, numbers[hit])
            parts.append(found.filter(pa.array(~written)))
        if not parts:
            return pa.table({name: pa.array([], pa.utf8()) for name in columns})
        return pa.concat_tables(parts).combine_chunks()

    def _holder_slabs(
        self, loaded: LoadedType, members: tuple[str, ...], columns: tuple[str, ...]
    ) -> Iterator[tuple[pa.Table, Integers | None]]:
        """Read stored rows that may matter, with their numbers where all are read."""
        key = loaded.table_key
        lead = lead_member(members, self._stored.snapshot.open(key).indexes())
        is_float = pa.types.is_floating(loaded.destination.schema.field(lead).type)
        # 0.0 and -0.0 are one value for this rule, and two values in a filter.
        if not is_float and loaded.live_count <= PROBES_MAX:
            values = loaded.pick(live_rows(loaded), (lead,))[lead]
            yield self._stored.where(key, lead, values, columns=columns), None
            return
        start = 0
        for slab in self._stored.scan(key, columns):
            yield slab, np.arange(start, start + slab.num_rows)
            start += slab.num_rows


def _spelled(rows: pa.Table, members: tuple[str, ...]) -> list[list[str]]:
    """Return the texts of each member; rows with a null share no tuple."""
    return [spell(flat(rows[name])).to_pylist() for name in members]


def _by_name(catalog: Catalog) -> list[EntityType]:
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    return sorted(entity_types, key=lambda entity_type: (entity_type.name, entity_type.table_key))
