"""Several records of one id become one: the last, the first, or all of them combined.

1. Combined, a property takes the value of the last record that names it; what no record names stays
   absent.
2. A vector that is made from a text comes from the last record that names either of them.
3. The last record of the id stands for all of them; the others are superseded.
4. Groups are combined a bounded number of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import NodeType
from omnigraph.schema.values.equality import equal_rows
from omnigraph.write.load.check.repeats import Repeats, folds, repeats
from omnigraph.write.load.input.interfaces import LoadInput
from omnigraph.write.load.options import LoadOptions, OnDuplicate, RowsTiedError
from omnigraph.write.load.rows.absent import MADE, masks_of
from omnigraph.write.load.rows.overlay import Overlay
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.stage.columns import Integers, Mask, flat

_COMBINED_ROWS: Final = 1 << 17


def fold(
    loaded: LoadedType,
    options: LoadOptions,
    source: LoadInput,
    order_by: Sequence[str] = (),
) -> None:
    """Make one record of several that have one id, if the load asks for that.

    Rows that were ordered by columns must differ in them.
    """
    if not folds(loaded, options, source) or not loaded.has_given_ids:
        return
    found = list(repeats(loaded, loaded.ids, ("id",), counted=loaded.live))
    if not found:
        return
    for part in found if order_by else ():
        _require_order(loaded, part, order_by)
    if options.on_duplicate is OnDuplicate.COMBINE:
        _combine(loaded, found)
    elif options.on_duplicate is OnDuplicate.FIRST:
        loaded.supersede(np.concatenate([part.rows for part in found]))
    else:
        loaded.supersede(np.concatenate([part.previous for part in found]))


def _require_order(loaded: LoadedType, part: Repeats, order_by: Sequence[str]) -> None:
    columns = tuple(dict.fromkeys(("id", *order_by)))
    rows = np.unique(np.concatenate([part.rows, part.previous]))
    picked = loaded.pick(rows, columns)
    later, earlier = (pa.array(np.searchsorted(rows, one)) for one in (part.rows, part.previous))
    tied = np.ones(len(part.rows), np.bool_)
    for name in order_by:
        column = flat(picked[name])
        tied &= equal_rows(column.take(later), column.take(earlier))
    if tied.any():
        entity_id = picked["id"][int(np.searchsorted(rows, part.rows[tied][0]))].as_py()
        raise RowsTiedError(loaded.entity_type.name, entity_id, ", ".join(order_by))


def _combine(loaded: LoadedType, parts: Sequence[Repeats]) -> None:
    """Fold the records of every repeated id into the last of them."""
    again = np.concatenate([part.rows for part in parts])
    first = np.concatenate([part.first for part in parts])
    rows = np.concatenate([again, np.unique(first)])
    groups = np.concatenate([first, np.unique(first)])
    columns = loaded.destination.schema
    spool = loaded.budget.spool(columns)
    lasts: list[Integers] = []
    for own in _chunks(rows, groups):
        lasts.append(own[1])
        for batch in _combined(loaded, *own):
            spool.append(batch)
    spool.finish()
    last = np.concatenate(lasts)
    loaded.supersede(np.setdiff1d(rows, last))
    loaded.lay_over(Overlay(last, tuple(columns.names), spool))


def _chunks(rows: Integers, groups: Integers) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Divide rows by whole groups, these in the order of their last rows.

    Yields the rows, group by group in their order, the last row of each group, and where the rows
    of each group begin.
    """
    order = np.lexsort((rows, groups))
    rows, groups = rows[order], groups[order]
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    counts = np.diff(np.append(starts, len(rows)))
    lasts = rows[starts + counts - 1]
    by_last = np.argsort(lasts)
    starts, counts, lasts = starts[by_last], counts[by_last], lasts[by_last]
    chunk = np.cumsum(counts) // _COMBINED_ROWS
    for number in np.unique(chunk).tolist():
        own = chunk == number
        begins = np.cumsum(counts[own]) - counts[own]
        places = np.repeat(starts[own] - begins, counts[own]) + np.arange(counts[own].sum())
        yield rows[places], lasts[own], begins


def _combined(
    loaded: LoadedType, rows: Integers, lasts: Integers, begins: Integers
) -> list[pa.RecordBatch]:
    schema = loaded.destination.schema
    order = np.argsort(rows)
    back = np.argsort(order)
    picked = loaded.pick(rows[order], schema.names)
    absent = masks_of(loaded.absent.take(rows[order]), back)
    ends = np.append(begins[1:], len(rows)) - 1
    arrays, left = [], {}
    for name in schema.names:
        chosen = _last_named(_is_named(loaded, name, absent, len(rows)), begins, ends)
        arrays.append(flat(picked[name]).take(pa.array(back[chosen])))
        for bit in (name, MADE + name):
            if bit in absent:
                left[bit] = absent[bit][chosen]
    loaded.absent.replace(lasts, left)
    return [pa.RecordBatch.from_arrays(arrays, schema=schema)]


def _is_named(loaded: LoadedType, name: str, absent: dict[str, Mask], count: int) -> Mask:
    nothing = np.zeros(count, np.bool_)
    named: Mask = ~absent.get(name, nothing)
    node = loaded.entity_type
    if isinstance(node, NodeType) and name in node.embed_sources:
        named = named | ~absent.get(node.embed_sources[name].source, nothing)
    return named


def _last_named(named: Mask, begins: Integers, ends: Integers) -> Integers:
    """Return the last place of every group that is named, or its last place."""
    places = np.where(named, np.arange(len(named)), -1)
    last: Integers = np.maximum.reduceat(places, begins)
    return np.where(last < begins, ends, last)
