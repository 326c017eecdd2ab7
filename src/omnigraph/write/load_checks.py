"""The rules across rows of a load: keys, `@unique`, ends of edges, `@card`, ids that exist already.

1. The rules work on hashes of all rows, and on the texts of those rows alone that hashes point out:
   equal tuples have equal hashes, so rows that share none are done with. Candidates are compared as
   texts, at most `_CANDIDATES_MAX` distinct ones at a time.
2. Stored rows are found by an index for a few values, by one pass over the needed columns for many.
3. Order: type by type in name order key, `@unique`, ends, `@card`; then ids that exist already.
4. A finding names the row that has to go for the rule to hold again, where there is one: of two
   rows with one tuple the later, of too many edges those that came last, of too few all that are
   written.
5. The verdict holds as long as the tables stay where they were. Written tables are compared by the
   commit itself; the others that it rests on are `reads`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EdgeType, NodeType
from omnigraph.schema.values.ids import spell
from omnigraph.write import codes
from omnigraph.write.columns import Integers, Mask, flat, is_in, repeated
from omnigraph.write.delta import WriteMode
from omnigraph.write.hashing import NO_HASH, Hashes, HashIndex, Pairs, is_among, repeated_hashes
from omnigraph.write.load_types import LoadedType
from omnigraph.write.locate import PROBES_MAX, StoredRows
from omnigraph.write.validate_cardinality import card_violation
from omnigraph.write.validate_endpoints import edge_ends, missing_end
from omnigraph.write.validate_unique import lead_member, matching_rows, unique_violation
from omnigraph.write.violations import (
    VIOLATIONS_MAX,
    Violation,
    ViolationLog,
    key_conflict_text,
    number_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.manifest import Entry
    from omnigraph.schema import Catalog
    from omnigraph.write.load_rows import Owner

_CANDIDATES_MAX: Final = 1 << 20
_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True)
class LoadTerms:
    """What a load has agreed on: `keeps_last` and `folds_free_ids` are about ids given twice.

    `keeps_last`: the last record of an id wins. `folds_free_ids`: it does where the id is no key.
    """

    mode: WriteMode
    keeps_last: bool = False
    folds_free_ids: bool = True
    keeps_ends: bool = False
    """Whether it is remembered which nodes edges end in, for their topology."""
    sets_aside: bool = False
    """Whether rows that break a rule are left out instead of failing the load."""

    def folds(self, loaded: LoadedType) -> bool:
        """Whether several records of one id are one row."""
        if self.mode is not WriteMode.MERGE:
            return False
        return self.keeps_last or (self.folds_free_ids and not loaded.is_keyed)


@dataclass
class Conflicts:
    """Rows of one type whose ids cannot be inserted: the first of them, and how many."""

    is_stored: bool
    total: int = 0
    ids: list[str] = field(default_factory=list)
    where: str = ""


class Findings:
    """What one run of the rules has found; with `keeps_all` every violation and its row."""

    def __init__(self, *, keeps_all: bool) -> None:
        self.log = ViolationLog(_UNLIMITED if keeps_all else VIOLATIONS_MAX)
        self.fallen: dict[str, dict[int, list[Violation]]] = {}
        self.unfixable = ViolationLog()
        self.conflicts: dict[str, list[Conflicts]] = {}
        self._keeps_all = keeps_all

    @property
    def room(self) -> int:
        """How many more violations are wanted in full."""
        return self.log.room

    def add(self, loaded: LoadedType, row: int, violation: Violation) -> None:
        """Note that a row breaks a rule."""
        self.log.add(violation)
        if self._keeps_all:
            self.fallen.setdefault(loaded.table_key, {}).setdefault(row, []).append(violation)

    def add_unfixable(self, violation: Violation) -> None:
        """Note a broken rule that no row of the load could mend by staying out."""
        self.log.add(violation)
        self.unfixable.add(violation)

    def count(self, rule: str, number: int) -> None:
        """Count violations that are not wanted in full."""
        self.log.count(rule, number)


def fold(loaded: LoadedType, terms: LoadTerms) -> None:
    """Let only the last record of every id count, where that is what the load means."""
    if not terms.folds(loaded) or not loaded.has_given_ids:
        return
    superseded: list[Integers] = []
    for repeats in _repeats(loaded, _id_hashes(loaded, loaded.live), ("id",)):
        codes_of_id = flat(repeats.rows["id"]).dictionary_encode().indices.to_numpy()
        _, from_end = np.unique(codes_of_id[::-1], return_index=True)
        last = np.zeros(len(codes_of_id), np.bool_)
        last[len(codes_of_id) - 1 - from_end] = True
        superseded.append(repeats.numbers[~last])
    if superseded:
        loaded.supersede(np.concatenate(superseded))


class LoadJudge:
    """One run of the rules over all types of a load, against one snapshot."""

    def __init__(
        self,
        types: Mapping[str, LoadedType],
        catalog: Catalog,
        terms: LoadTerms,
        stored: StoredRows,
        place: str,
    ) -> None:
        self._types = types
        self._catalog = catalog
        self._terms = terms
        self._stored = stored
        self._place = place
        self.findings = Findings(keeps_all=terms.sets_aside)
        self.reads: dict[str, Entry | None] = {}

    def run(self) -> Findings:
        """Check everything."""
        for owner in _by_name(self._catalog):
            loaded = self._types.get(owner.table_key)
            if loaded is not None:
                self._check_repeated_ids(loaded)
                for number in range(len(loaded.tuples)):
                    self._check_apart(loaded, number)
                    self._check_stored_tuples(loaded, number)
            if isinstance(owner, EdgeType):
                if loaded is not None:
                    self._check_ends(owner, loaded)
                self._check_orphans(owner)
                if loaded is not None:
                    self._check_cardinality(owner, loaded)
        if self._terms.mode is WriteMode.APPEND:
            for owner in _by_name(self._catalog):
                loaded = self._types.get(owner.table_key)
                if loaded is not None:
                    self._check_stored_ids(loaded)
        for loaded in self._types.values():
            loaded.forget_index()
        return self.findings

    def run_again(self, moved: frozenset[str]) -> Findings:
        """Check the rules that rest on tables which have moved."""
        for owner in _by_name(self._catalog):
            if not isinstance(owner, EdgeType):
                continue
            loaded = self._types.get(owner.table_key)
            if loaded is not None and any(f"node:{name}" in moved for _, name in edge_ends(owner)):
                self._check_ends(owner, loaded)
            if owner.table_key in moved:
                self._check_orphans(owner)
        return self.findings

    def _is_overwritten(self, table_key: str) -> bool:
        return self._terms.mode is WriteMode.OVERWRITE and table_key in self._types

    def _rest_on(self, table_key: str) -> None:
        if table_key not in self._types:
            self.reads[table_key] = self._stored.entry(table_key)

    # -- ids --------------------------------------------------------------------------------------

    def _check_repeated_ids(self, loaded: LoadedType) -> None:
        if loaded.id_start is None or not loaded.has_given_ids or self._terms.folds(loaded):
            return
        columns = ("id", *(loaded.owner.key if isinstance(loaded.owner, NodeType) else ()))
        for found in _repeats(loaded, _id_hashes(loaded, loaded.live), columns):
            again, first = repeated([found.rows["id"]])
            if loaded.is_keyed:
                self._add_repeated_keys(loaded, found, again, first)
            elif len(again):
                self._add_conflicts(loaded, found.take(again), first_rows=found.numbers[first])

    def _add_repeated_keys(
        self, loaded: LoadedType, found: _Picked, again: Integers, first: Integers
    ) -> None:
        members = loaded.owner.key if isinstance(loaded.owner, NodeType) else ()
        self._add_tuples(loaded, members, found, again, first, rule="key")

    def _check_stored_ids(self, loaded: LoadedType) -> None:
        if loaded.id_start is None or not loaded.has_given_ids:
            return
        if not self._stored.row_count(loaded.table_key):
            return
        rows = _live_rows(loaded, loaded.id_start)
        if len(rows) <= PROBES_MAX:
            ids = loaded.pick(rows, ("id",))
            hits = rows[self._stored.contains(loaded.table_key, ids["id"])]
        else:
            hits = self._rows_stored(loaded)
        if len(hits):
            picked = _Picked(loaded.pick(hits, ("id",)), hits)
            self._add_conflicts(loaded, picked, first_rows=None)

    def _rows_stored(self, loaded: LoadedType) -> Integers:
        """Find the rows whose ids are stored, by one pass over the stored ids."""
        rows: list[Integers] = []
        texts: list[pa.Array] = []
        for slab in self._stored.scan(loaded.table_key, ("id",)):
            ids = flat(slab["id"])
            found = loaded.index().rows_of(loaded.hasher.pairs(ids))
            if (found >= 0).any():
                rows.append(found[found >= 0])
                texts.append(ids.filter(pa.array(found >= 0)))
        if not rows:
            return np.zeros(0, np.int64)
        hits = np.unique(np.concatenate(rows))
        picked = loaded.pick(hits, ("id",))
        return hits[is_in(picked["id"], pa.chunked_array(texts))]

    def _add_conflicts(
        self, loaded: LoadedType, picked: _Picked, *, first_rows: Integers | None
    ) -> None:
        """Note ids that cannot be inserted."""
        is_stored = first_rows is None
        kind = "node" if isinstance(loaded.owner, NodeType) else "edge"
        conflicts = Conflicts(is_stored, total=len(picked.numbers))
        shown = picked.numbers[: min(self.findings.room, len(picked.numbers))]
        ids = picked.rows["id"].slice(0, len(shown)).to_pylist()
        conflicts.ids = ids[:VIOLATIONS_MAX]
        positions = loaded.positions(shown)
        firsts = None if first_rows is None else loaded.positions(first_rows[: len(shown)])
        for n, (row, entity_id) in enumerate(zip(shown.tolist(), ids, strict=True)):
            message = key_conflict_text(kind, loaded.owner.name, entity_id, is_stored=is_stored)
            where = "" if firsts is None else self._both(firsts[n], positions[n])
            conflicts.where = conflicts.where or where
            if self._terms.sets_aside:
                self.findings.add(
                    loaded,
                    row,
                    Violation(
                        position=positions[n],
                        type=loaded.owner.name,
                        property="id",
                        value=entity_id,
                        rule="key_conflict",
                        code=codes.KEY_CONFLICT,
                        message=message + where,
                    ),
                )
        self.findings.conflicts.setdefault(loaded.table_key, []).append(conflicts)

    def _both(self, first: int, second: int) -> str:
        return f" ({self._place}s {number_of(first)} and {number_of(second)})"

    # -- unique -----------------------------------------------------------------------------------

    def _check_apart(self, loaded: LoadedType, number: int) -> None:
        """Check the records of the input among each other, even two of one id."""
        counted = loaded.live if self._terms.keeps_last else loaded.records
        hashes = _counted(loaded.unique_hashes(number), counted)
        members = loaded.tuples[number]
        columns = ("id", *(name for name in members if name != "id"))
        for found in _repeats(loaded, _Hashed(hashes, 0), columns):
            again, first = repeated([spell(flat(found.rows[name])) for name in members])
            self._add_tuples(loaded, members, found, again, first, rule="unique")

    def _check_stored_tuples(self, loaded: LoadedType, number: int) -> None:
        """Check written rows against stored ones that stay."""
        key = loaded.table_key
        if self._is_overwritten(key) or not self._stored.row_count(key):
            return
        members = loaded.tuples[number]
        hashes = _counted(loaded.unique_hashes(number), loaded.live)
        ordered = np.unique(hashes[hashes != NO_HASH])
        if not len(ordered):
            return
        holders = self._holders(loaded, members, ordered)
        if not holders.num_rows:
            return
        held = np.unique(loaded.tuple_hashes(holders, members))
        rows = np.flatnonzero(is_among(hashes, held) & (hashes != NO_HASH))
        picked = loaded.pick(rows, ("id", *members))
        log = self.findings
        pairs = matching_rows(members, picked, holders)
        shown = pairs[: log.room]
        positions = loaded.positions(rows[[row for row, _ in shown]]) if shown else []
        for (row, holder), position in zip(shown, positions, strict=True):
            violation = unique_violation(
                loaded.owner,
                members,
                [spell(flat(picked[name].slice(row, 1)))[0].as_py() for name in members],
                held_by=(holders["id"][holder].as_py(), picked["id"][row].as_py()),
                position=position,
                rule="unique",
            )
            log.add(loaded, int(rows[row]), violation)
        log.count("unique", len(pairs) - len(shown))

    def _holders(self, loaded: LoadedType, members: tuple[str, ...], ordered: Hashes) -> pa.Table:
        """Read the stored rows that stay and have a tuple that may be a written one's."""
        columns = tuple(dict.fromkeys(("id", *members)))
        parts = []
        for slab in self._holder_slabs(loaded, members, columns):
            hit = is_among(loaded.tuple_hashes(slab, members), ordered)
            if not hit.any():
                continue
            found = slab.filter(pa.array(hit))
            written = loaded.index().rows_of(loaded.hasher.pairs(flat(found["id"]))) >= 0
            parts.append(found.filter(pa.array(~written)))
        if not parts:
            return pa.table({name: pa.array([], pa.utf8()) for name in columns})
        return pa.concat_tables(parts).combine_chunks()

    def _holder_slabs(
        self, loaded: LoadedType, members: tuple[str, ...], columns: tuple[str, ...]
    ) -> Iterator[pa.Table]:
        key = loaded.table_key
        lead = lead_member(members, self._stored.snapshot.open(key).indexes())
        is_float = pa.types.is_floating(loaded.destination.schema.field(lead).type)
        # Both zeros are one value here and two in a filter.
        if is_float or loaded.live_count > PROBES_MAX:
            return self._stored.scan(key, columns)
        values = loaded.pick(_live_rows(loaded), (lead,))[lead]
        return iter([self._stored.where(key, lead, values, columns=columns)])

    def _add_tuples(
        self,
        loaded: LoadedType,
        members: tuple[str, ...],
        found: _Picked,
        again: Integers,
        first: Integers,
        *,
        rule: str,
    ) -> None:
        log = self.findings
        shown = again[: log.room]
        positions = loaded.positions(found.numbers[shown])
        firsts = loaded.positions(found.numbers[first[: len(shown)]])
        rows = found.rows
        for n, (row, holder) in enumerate(zip(shown.tolist(), first.tolist(), strict=False)):
            violation = unique_violation(
                loaded.owner,
                members,
                [spell(flat(rows[name].slice(row, 1)))[0].as_py() for name in members],
                held_by=(rows["id"][holder].as_py(), rows["id"][row].as_py()),
                position=positions[n],
                rule=rule,
                where=self._both(firsts[n], positions[n]),
            )
            log.add(loaded, int(found.numbers[row]), violation)
        log.count(rule, len(again) - len(shown))

    # -- ends -------------------------------------------------------------------------------------

    def _check_ends(self, edge: EdgeType, loaded: LoadedType) -> None:
        for end, node_type in edge_ends(edge):
            rows = self._rows_without_node(loaded, end, f"node:{node_type}")
            shown = rows[: min(self.findings.room, len(rows))]
            texts = loaded.pick(shown, (end,))[end].to_pylist()
            positions = loaded.positions(shown)
            for row, text, position in zip(shown.tolist(), texts, positions, strict=True):
                self.findings.add(loaded, row, missing_end(edge, end, text, position))
            self.findings.count("endpoint", len(rows) - len(shown))

    def _rows_without_node(self, loaded: LoadedType, end: str, node_key: str) -> Integers:
        """Return the edges one of whose ends will not be there."""
        written = self._types.get(node_key)
        has_stored = bool(self._stored.row_count(node_key)) and not self._is_overwritten(node_key)
        stored: HashIndex | None = None
        missing: list[Integers] = []
        for start, slab in loaded.end_slabs(end):
            is_open = np.ones(len(slab), np.bool_)
            if loaded.live is not None:
                is_open &= loaded.live[start : start + len(slab)]
            if written is not None:
                found = written.index().rows_of(slab)
                is_open &= found < 0
                if self._terms.keeps_ends and not has_stored:
                    loaded.note_ends(end, start, found)
            if has_stored and stored is None and np.count_nonzero(is_open) > PROBES_MAX:
                stored = self._stored_index(loaded, node_key)
            if stored is not None:
                is_open[is_open] = ~stored.contains(slab.filter(is_open))
            if is_open.any():
                missing.append(np.flatnonzero(is_open) + start)
        if stored is not None or missing:
            self._rest_on(node_key)
        rows = np.concatenate(missing) if missing else np.zeros(0, np.int64)
        if len(rows) and has_stored:
            rows = self._not_stored(loaded, end, node_key, rows)
        return rows

    def _not_stored(self, loaded: LoadedType, end: str, node_key: str, rows: Integers) -> Integers:
        """Leave out the edges whose nodes are stored: by text, or by hash if they are many."""
        if len(rows) <= PROBES_MAX:
            texts = loaded.pick(rows, (end,))[end]
            return rows[~self._stored.contains(node_key, texts)]
        stored = self._stored_index(loaded, node_key)
        kept: list[Integers] = []
        for start, slab in loaded.end_slabs(end):
            low, high = np.searchsorted(rows, (start, start + len(slab)))
            own = rows[low:high] - start
            wanted = Pairs(slab.first[own], slab.second[own])
            kept.append(rows[low:high][~stored.contains(wanted)])
        return np.concatenate(kept)

    def _stored_index(self, loaded: LoadedType, node_key: str) -> HashIndex:
        """Index all stored ids of a node type."""
        parts = [
            loaded.hasher.pairs(flat(slab["id"])) for slab in self._stored.scan(node_key, ("id",))
        ]
        first = np.concatenate([part.first for part in parts])
        second = np.concatenate([part.second for part in parts])
        return HashIndex(Pairs(first, second))

    def _check_orphans(self, edge: EdgeType) -> None:
        """Check that no stored edge stays behind whose node goes."""
        if self._is_overwritten(edge.table_key):
            return
        for end, node_type in edge_ends(edge):
            node_key = f"node:{node_type}"
            if not self._is_overwritten(node_key):
                continue
            self._rest_on(edge.table_key)
            nodes = self._types[node_key]
            for slab in self._stored.scan(edge.table_key, (end,)):
                texts = flat(slab[end])
                gone = nodes.index().rows_of(nodes.hasher.pairs(texts)) < 0
                orphans = texts.filter(pa.array(gone))
                shown = orphans.slice(0, min(self.findings.room, len(orphans)))
                for node_id in shown.to_pylist():
                    self.findings.add_unfixable(missing_end(edge, end, node_id, None))
                self.findings.count("endpoint", len(orphans) - len(shown))

    # -- cardinality ------------------------------------------------------------------------------

    def _check_cardinality(self, edge: EdgeType, loaded: LoadedType) -> None:
        limits = edge.cardinality
        if (limits.min == 0 and limits.max is None) or not loaded.live_count:
            return
        hashes = loaded.end_hashes("src")
        rows = _live_rows(loaded)
        own = hashes if len(rows) == len(hashes) else hashes[rows]
        sources, first, counts = np.unique(own, return_index=True, return_counts=True)
        counted = _Counted(sources, counts.astype(np.int64), counts.astype(np.int64), first)
        if not self._is_overwritten(edge.table_key) and self._stored.row_count(edge.table_key):
            counted = self._with_stored(loaded, counted, rows)
        too_few = counted.totals < limits.min
        too_many = np.zeros(len(too_few), np.bool_)
        if limits.max is not None:
            too_many = counted.totals > limits.max
        self._add_cardinality(edge, loaded, counted, too_few | too_many, rows)

    def _with_stored(self, loaded: LoadedType, counted: _Counted, rows: Integers) -> _Counted:
        """Add the stored edges that stay, and the former sources of edges that move."""
        former = self._former_sources(loaded, rows)
        extra = np.setdiff1d(former, counted.sources)
        order = np.argsort(np.concatenate([counted.sources, extra]))
        sources = np.concatenate([counted.sources, extra])[order]
        written = np.concatenate([counted.written, np.zeros(len(extra), np.int64)])[order]
        behind = np.full(len(extra), len(rows), np.int64)
        first = np.concatenate([counted.first, behind])[order]
        totals = written.copy()
        for slab in self._edge_slabs(loaded, rows, with_former=len(extra) > 0):
            staying = slab
            if loaded.has_given_ids:
                staying = slab.filter(pa.array(~_is_written(loaded, slab)))
            found = loaded.hasher.pairs(flat(staying["src"])).first
            places = np.searchsorted(sources, found)
            places = np.minimum(places, len(sources) - 1)
            hits = places[sources[places] == found]
            totals += np.bincount(hits, minlength=len(sources))
        return _Counted(sources, written, totals, first)

    def _former_sources(self, loaded: LoadedType, rows: Integers) -> Hashes:
        """Return the sources that stored edges have which the load replaces."""
        if loaded.id_start is None or not loaded.has_given_ids:
            return np.zeros(0, np.uint64)
        key, hasher = loaded.table_key, loaded.hasher
        if len(rows) <= PROBES_MAX:
            ids = loaded.pick(rows, ("id",))["id"]
            found = self._stored.where(key, "id", ids, columns=("src",))
            return np.unique(hasher.pairs(flat(found["src"])).first)
        parts = [np.zeros(0, np.uint64)]
        for slab in self._stored.scan(key, ("id", "src")):
            moved = slab.filter(pa.array(_is_written(loaded, slab)))
            parts.append(np.unique(hasher.pairs(flat(moved["src"])).first))
        return np.unique(np.concatenate(parts))

    def _edge_slabs(
        self, loaded: LoadedType, rows: Integers, *, with_former: bool
    ) -> Iterator[pa.Table]:
        key = loaded.table_key
        if len(rows) > PROBES_MAX:
            return self._stored.scan(key, ("id", "src"))
        picked = loaded.pick(rows, ("id", "src"))
        sources = [flat(picked["src"])]
        if with_former:
            found = self._stored.where(key, "id", picked["id"], columns=("src",))
            sources.append(flat(found["src"]).cast(pa.utf8()))
        wanted = pa.chunked_array(sources)
        return iter([self._stored.where(key, "src", wanted, columns=("id", "src"))])

    def _add_cardinality(
        self, edge: EdgeType, loaded: LoadedType, counted: _Counted, bad: Mask, rows: Integers
    ) -> None:
        """Note the sources that have too few or too many edges, in the order of the input."""
        found = np.flatnonzero(bad)
        found = found[np.argsort(counted.first[found], kind="stable")]
        shown = found[: min(self.findings.room, len(found))]
        self.findings.count("cardinality", len(found) - len(shown))
        if not len(shown):
            return
        own = loaded.end_hashes("src")[rows]
        for place in shown.tolist():
            edges = rows[own == counted.sources[place]]
            total = int(counted.totals[place])
            if not len(edges):
                self._add_former(edge, loaded, counted.sources[place], total, rows)
                continue
            falling = edges[-1:]
            if self._terms.sets_aside:
                falling = _falling(edge, edges, total)
            text = loaded.pick(edges[-1:], ("src",))["src"][0].as_py()
            positions = loaded.positions(falling)
            for row, position in zip(falling.tolist(), positions, strict=True):
                self.findings.add(loaded, row, card_violation(edge, text, total, position))

    def _add_former(
        self, edge: EdgeType, loaded: LoadedType, source: np.uint64, total: int, rows: Integers
    ) -> None:
        """Note a source that loses its edges to a move; those that leave it have to stay."""
        key = loaded.table_key
        picked = loaded.pick(rows, ("id",))["id"] if len(rows) <= PROBES_MAX else None
        slabs = (
            self._stored.scan(key, ("id", "src"))
            if picked is None
            else iter([self._stored.where(key, "id", picked, columns=("id", "src"))])
        )
        for slab in slabs:
            is_here = loaded.hasher.pairs(flat(slab["src"])).first == source
            found = slab.filter(pa.array(is_here))
            moving = loaded.index().rows_of(loaded.hasher.pairs(flat(found["id"])))
            moving = moving[moving >= 0]
            if not len(moving):
                continue
            violation = card_violation(edge, found["src"][0].as_py(), total, None)
            if not self._terms.sets_aside:
                self.findings.log.add(violation)
                return
            for row in moving.tolist():
                self.findings.add(loaded, row, violation)


# -- helpers --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Hashed:
    """One number per row, from row `start` on; `NO_HASH` for rows that do not count."""

    hashes: Hashes
    start: int


@dataclass(frozen=True, eq=False)
class _Picked:
    """Some rows with their texts, and their numbers."""

    rows: pa.Table
    numbers: Integers

    def take(self, places: Integers) -> _Picked:
        return _Picked(self.rows.take(pa.array(places)), self.numbers[places])


@dataclass(frozen=True, eq=False)
class _Counted:
    """Edges by source: hashes in ascending order, how many are written, how many there will be.

    `first` is the place of the first written edge, for the order of messages.
    """

    sources: Hashes
    written: Integers
    totals: Integers
    first: Integers


def _repeats(loaded: LoadedType, hashed: _Hashed, columns: Sequence[str]) -> Iterator[_Picked]:
    """Return the rows that share a hash with another row, with their texts, in portions."""
    values = repeated_hashes(hashed.hashes)
    for start in range(0, len(values), _CANDIDATES_MAX):
        part = values[start : start + _CANDIDATES_MAX]
        rows = np.flatnonzero(is_among(hashed.hashes, part)) + hashed.start
        names = tuple(dict.fromkeys(columns))
        yield _Picked(loaded.pick(rows, names), rows)


def _id_hashes(loaded: LoadedType, counted: Mask | None) -> _Hashed:
    start = loaded.id_start or 0
    own = None if counted is None else counted[start:]
    return _Hashed(_counted(loaded.id_hashes(), own), start)


def _counted(hashes: Hashes, counted: Mask | None) -> Hashes:
    return hashes if counted is None else np.where(counted, hashes, NO_HASH)


def _live_rows(loaded: LoadedType, start: int = 0) -> Integers:
    if loaded.live is None:
        return np.arange(start, loaded.row_count)
    return np.flatnonzero(loaded.live[start:]) + start


def _is_written(loaded: LoadedType, stored: pa.Table) -> Mask:
    written: Mask = loaded.index().rows_of(loaded.hasher.pairs(flat(stored["id"]))) >= 0
    return written


def _falling(edge: EdgeType, edges: Integers, total: int) -> Integers:
    """Return the written edges of a source that must stay out for `@card` to hold."""
    limits = edge.cardinality
    if limits.max is not None and total > limits.max:
        excess = min(total - limits.max, len(edges))
        return edges[len(edges) - excess :]
    return edges


def _by_name(catalog: Catalog) -> list[Owner]:
    owners: list[Owner] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    return sorted(owners, key=lambda owner: (owner.name, owner.table_key))
