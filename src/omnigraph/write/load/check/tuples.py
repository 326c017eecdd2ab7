"""Finds rows of a load whose ids or tuples stored rows have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.write.load.check.hashes import HashPart, StoredHashes
from omnigraph.write.load.check.hashing import NO_HASH, Hashes, distinct_hashes, is_among
from omnigraph.write.load.check.scope import FirstRows, LoadScope, live_rows
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.check import NO_ROWS, NOTHING, Found, FoundRows
from omnigraph.write.rules.unique import can_look_up, lead_member, matching_rows
from omnigraph.write.rules.violations import VIOLATIONS_MAX
from omnigraph.write.stage.columns import Integers, flat
from omnigraph.write.stage.stored_rows import PROBES_MAX

_CONFIRMED_ROWS: Final = 1 << 18


def rows_with_stored_ids(loaded: LoadedType, scope: LoadScope) -> FoundRows:
    """Find rows whose id is stored."""
    if loaded.id_start is None or not loaded.has_given_ids:
        return NO_ROWS
    if not scope.stored.row_count(loaded.table_key):
        return NO_ROWS
    hits = FirstRows(max(scope.findings.wanted, VIOLATIONS_MAX))
    if loaded.live_count <= PROBES_MAX:
        hits.add(_confirmed(loaded, live_rows(loaded, loaded.id_start), scope))
        return hits.found()
    ids = StoredHashes(
        scope.stored, loaded.table_key, "id", scheme=loaded.hasher, budget=loaded.budget
    )
    for _, found in loaded.lookup().joined(ids):
        rows = np.unique(found[found >= 0])
        for start in range(0, len(rows), _CONFIRMED_ROWS):
            hits.add(_confirmed(loaded, rows[start : start + _CONFIRMED_ROWS], scope))
    ids.forget_buckets()
    return hits.found()


def _confirmed(loaded: LoadedType, rows: Integers, scope: LoadScope) -> Integers:
    """Return the rows whose ids are stored, compared as texts."""
    ids = loaded.pick(rows, ("id",))["id"]
    return rows[scope.stored.contains(loaded.table_key, ids)]


def rows_with_stored_tuples(
    loaded: LoadedType, members: tuple[str, ...], scope: LoadScope
) -> Found[tuple[int, str]]:
    """Find rows whose tuple a stored row has that stays."""
    key = loaded.table_key
    if scope.is_overwritten(key) or not scope.stored.row_count(key):
        return NOTHING
    found: list[tuple[int, str]] = []
    total = 0
    for part in loaded.tuple_column(members).parts(loaded.live):
        total += _add_held(loaded, members, part, scope, found)
    return Found(sorted(found)[: scope.findings.wanted], total)


def _add_held(
    loaded: LoadedType,
    members: tuple[str, ...],
    part: HashPart,
    scope: LoadScope,
    held_rows: list[tuple[int, str]],
) -> int:
    """Find rows and the ids of stored rows with their tuples; return how many there are."""
    ordered = part.distinct()
    holders = _holders(loaded, members, ordered, scope) if len(ordered) else None
    if holders is None or not holders.num_rows:
        return 0
    held = distinct_hashes(loaded.tuple_hashes(holders, members))
    hits = [rows[is_among(hashes, held) & (hashes != NO_HASH)] for hashes, rows in part.slabs()]
    rows = np.sort(np.concatenate(hits))
    pairs = matching_rows(members, loaded.pick(rows, members), holders)
    holder_ids = holders["id"]
    held_rows += [
        (int(rows[row]), holder_ids[holder].as_py())
        for row, holder in pairs[: scope.findings.wanted]
    ]
    return len(pairs)


def _holders(
    loaded: LoadedType, members: tuple[str, ...], ordered: Hashes, scope: LoadScope
) -> pa.Table:
    """Read the stored rows that stay and may share a tuple with a written row."""
    columns = tuple(dict.fromkeys(("id", *members)))
    parts = []
    for slab, numbers in _holder_slabs(loaded, members, columns, scope):
        hit = is_among(loaded.tuple_hashes(slab, members), ordered)
        if not hit.any():
            continue
        found = slab.filter(pa.array(hit))
        if numbers is None:
            pairs = loaded.hasher.pairs(flat(found["id"]))
            written = loaded.lookup().rows_of(pairs) >= 0
        else:
            written = scope.is_written(loaded, found, numbers[hit])
        parts.append(found.filter(pa.array(~written)))
    if not parts:
        return pa.table({name: pa.array([], pa.utf8()) for name in columns})
    return pa.concat_tables(parts).combine_chunks()


def _holder_slabs(
    loaded: LoadedType, members: tuple[str, ...], columns: tuple[str, ...], scope: LoadScope
) -> Iterator[tuple[pa.Table, Integers | None]]:
    """Read stored rows that may matter, with their numbers where all are read."""
    key = loaded.table_key
    lead = lead_member(members, scope.stored.snapshot.open(key).indexes())
    kind = loaded.destination.schema.field(lead).type
    if can_look_up(kind) and loaded.live_count <= PROBES_MAX:
        values = loaded.pick(live_rows(loaded), (lead,))[lead]
        yield scope.stored.where(key, lead, values, columns=columns), None
        return
    start = 0
    for slab in scope.stored.scan(key, columns):
        yield slab, np.arange(start, start + slab.num_rows)
        start += slab.num_rows
