"""Rules about rows that do not name all properties, judged on the rows that will be stored.

1. A required property that a row does not name is missing unless a stored row keeps it.
2. A required vector is missing, too, where the row changes the text that it is made from and no
   vector was made.
3. `@unique` looks at the tuples that rows will have: members that a row does not name are those of
   the stored row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.converted import missing_message
from omnigraph.schema.values.equality import equal_rows
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.check.matches import Match
from omnigraph.write.load.check.repeats import repeats
from omnigraph.write.load.check.scope import LoadScope
from omnigraph.write.load.compare import embedded_texts
from omnigraph.write.load.rows.absent import MADE, AbsentMasks, any_of, chosen, masks_of
from omnigraph.write.load.rows.overlay import Overlay
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.load.stage import matches_of
from omnigraph.write.rules.unique import unique_tuples
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers, Mask, flat
from omnigraph.write.stage.stored_rows import StoredRows

_RULE: Final = "required"


def required_properties(entity_type: EntityType) -> tuple[str, ...]:
    """Return the properties that a new row has to name."""
    return tuple(
        name
        for name, prop in entity_type.properties.items()
        if not prop.prop_type.nullable and prop.default is None
    )


def lacking(absent: AbsentMasks, name: str, count: int) -> Mask:
    """Return the rows that have no value of their own for a property."""
    mask: Mask = any_of(absent, (name,), count) & ~any_of(absent, (MADE + name,), count)
    return mask


# -- required properties --------------------------------------------------------------------------


def check_incomplete(check: LoadScope) -> None:
    """Find rows that neither name a required property nor keep it."""
    by_name = sorted(check.types.values(), key=lambda one: (one.entity_type.name, one.table_key))
    for loaded in by_name:
        required = required_properties(loaded.entity_type)
        names = [name for name in required if name in loaded.absent.names]
        if names:
            _check_type(loaded, names, check)


def _check_type(loaded: LoadedType, names: list[str], check: LoadScope) -> None:
    texts = embedded_texts(loaded.entity_type)
    sources = {name: texts[name] for name in names if name in texts}
    for start, batch in loaded.batches(tuple(dict.fromkeys(("id", *sources.values())))):
        count = batch.num_rows
        absent = loaded.absent.between(start, start + count)
        live = np.ones(count, np.bool_)
        if loaded.live is not None:
            live = loaded.live[start : start + count]
        kept = _kept_rows(loaded, start, count, check)
        is_kept = np.zeros(count, np.bool_)
        is_kept[kept.rows - start] = True
        for name in names:
            lacks = lacking(absent, name, count) & live
            missing = np.flatnonzero(lacks & ~is_kept) + start
            if len(missing):
                # Of several rows of one id only one was found; that they are several is reported.
                missing = np.setdiff1d(missing, _repeated(loaded))
            _add(loaded, missing, name, None, check)
            if name in sources:
                source = sources[name]
                asked = lacks & ~any_of(absent, (source,), count)
                own = asked[kept.rows - start]
                given = batch[source].take(pa.array(kept.rows[own] - start))
                before = _stored_texts(loaded, kept.row_ids[own], source, check)
                changed = kept.rows[own][~equal_rows(given, before.cast(given.type))]
                _add(loaded, changed, name, source, check)


def _repeated(loaded: LoadedType) -> Integers:
    """Return the rows that share their id with another row."""
    found = repeats(loaded, loaded.ids, ("id",), counted=loaded.live)
    rows = [part for one in found for part in (one.rows, one.first)]
    return np.concatenate([np.zeros(0, np.int64), *rows])


def _kept_rows(loaded: LoadedType, start: int, count: int, check: LoadScope) -> Match:
    """Return the rows whose stored rows keep what they do not name."""
    if not check.options.keeps_absent or not check.stored.row_count(loaded.table_key):
        nothing = np.zeros(0, np.uint64)
        return Match(np.zeros(0, np.int64), nothing, nothing)
    return matches_of(loaded, check.stored).between(start, start + count)


def _stored_texts(loaded: LoadedType, row_ids: Hashes, source: str, check: LoadScope) -> pa.Array:
    if not len(row_ids):
        return pa.array([], loaded.destination.schema.field(source).type)
    handle = check.stored.snapshot.open(loaded.table_key)
    return flat(handle.take(pa.array(row_ids), columns=[source])[source])


def _add(
    loaded: LoadedType, rows: Integers, name: str, source: str | None, check: LoadScope
) -> None:
    if not len(rows):
        return
    prop = loaded.entity_type.properties[name].prop_type
    message = missing_message(prop, name)
    if source is not None:
        message = f"vector property '{name}' is required, and its text '{source}' changes"
    wanted = rows[: check.findings.wanted]
    for row, position in zip(wanted.tolist(), loaded.positions(wanted), strict=True):
        violation = Violation(
            position=position,
            type=loaded.entity_type.name,
            property=name,
            value=None,
            rule=_RULE,
            code=value_codes.MISSING,
            message=f"{loaded.entity_type.name}: {message}",
            table_key=loaded.table_key,
        )
        check.findings.add(row, violation)
    check.findings.count(_RULE, len(rows) - len(wanted))


# -- tuples ---------------------------------------------------------------------------------------


def tuples_that_keep(
    entity_type: EntityType, absent: frozenset[str], everywhere: frozenset[str]
) -> list[tuple[str, ...]]:
    """Return the tuples of which some rows keep stored members.

    Where no row names any member, no row changes its tuple; new rows have nulls, unless there are
    defaults.
    """

    def matters(members: tuple[str, ...]) -> bool:
        if not absent.intersection(members):
            return False
        has_default = any(
            entity_type.properties[name].default is not None
            for name in members
            if name in entity_type.properties
        )
        return has_default or not everywhere.issuperset(members)

    return [members for members in unique_tuples(entity_type) if matters(members)]


def with_stored_members(loaded: LoadedType, stored: StoredRows) -> LoadedType:
    """Return the rows with the members of `@unique` tuples that they keep."""
    tuples = tuples_that_keep(
        loaded.entity_type, loaded.absent.names, loaded.absent.names_everywhere
    )
    if not tuples or not stored.row_count(loaded.table_key):
        return loaded
    members = dict.fromkeys(name for members in tuples for name in members)
    names = tuple(name for name in members if name in loaded.absent.names)
    schema = loaded.destination.schema
    spool = loaded.budget.spool(pa.schema([schema.field(name) for name in names]))
    rows: list[Integers] = [np.zeros(0, np.int64)]
    for numbers, batch in _kept_members(loaded, stored, names):
        rows.append(numbers)
        spool.append(batch)
    spool.finish()
    return loaded.with_overlay(Overlay(np.concatenate(rows), names, spool), tuples)


def _kept_members(
    loaded: LoadedType, stored: StoredRows, names: tuple[str, ...]
) -> Iterator[tuple[Integers, pa.RecordBatch]]:
    matches = matches_of(loaded, stored)
    handle = stored.snapshot.open(loaded.table_key)
    schema = pa.schema([loaded.destination.schema.field(name) for name in names])
    for start, batch in loaded.batches(names):
        own = matches.between(start, start + batch.num_rows)
        absent = masks_of(loaded.absent.between(start, start + batch.num_rows), own.rows - start)
        some = any_of(absent, names, len(own.rows))
        if not some.any():
            continue
        before = handle.take(pa.array(own.row_ids[some]), columns=list(names))
        given = batch.take(pa.array(own.rows[some] - start))
        arrays = []
        for name, field in zip(names, schema, strict=True):
            kept = any_of(absent, (name,), len(own.rows))[some]
            first, second = flat(before[name]).cast(field.type), given[name].cast(field.type)
            arrays.append(chosen(kept, first, second))
        yield own.rows[some], pa.RecordBatch.from_arrays(arrays, schema=schema)
