"""Rows of a load that have an id or a tuple that an earlier row has.

1. Rows that share no hash share no tuple. The others are compared as texts, in the order of the
   rows: what is kept is one text for each distinct tuple among them, and at most about
   `_CANDIDATES_MAX` of those.
2. Rows may repeat a few tuples however often: their texts are read slab by slab.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.schema.values.ids import spell
from omnigraph.write.load.check.hashes import HashedColumn
from omnigraph.write.load.check.hashing import is_among
from omnigraph.write.load.input.interfaces import LoadInput
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.stage.columns import Integers, Mask, flat, places_in, slabs
from omnigraph.write.stage.delta import WriteMode

_CANDIDATES_MAX: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class Repeats:
    """Rows whose tuple occurred before; the first row that has it, and the last one before."""

    rows: Integers
    first: Integers
    previous: Integers


def folds(loaded: LoadedType, options: LoadOptions, source: LoadInput) -> bool:
    """Return whether several records of one id become one."""
    if options.mode is not WriteMode.MERGE:
        return False
    return options.folds or (source.last_wins_for_unkeyed_ids and not loaded.is_keyed)


def repeats(
    loaded: LoadedType, hashed: HashedColumn, members: Sequence[str], *, counted: Mask | None
) -> Iterator[Repeats]:
    """Find the repeated tuples among the rows that count."""
    marked: Mask | None = None
    tuples = 0
    for part in hashed.parts(counted):
        values = part.repeated()
        if not len(values):
            continue
        if marked is None:
            marked = np.zeros(loaded.row_count, np.bool_)
        for hashes, rows in part.slabs():
            marked[rows[is_among(hashes, values)]] = True
        tuples += len(values)
        if tuples >= _CANDIDATES_MAX:
            yield from _compared(loaded, marked, members)
            marked, tuples = None, 0
    if marked is not None:
        yield from _compared(loaded, marked, members)


def _compared(loaded: LoadedType, marked: Mask, members: Sequence[str]) -> Iterator[Repeats]:
    """Compare marked rows as texts."""
    groups = RepeatGroups()
    schema = pa.schema([(name, loaded.destination.schema.field(name).type) for name in members])
    end = 0
    numbers = np.flatnonzero(marked)
    for slab in slabs(_marked_batches(loaded, marked, schema), schema):
        start, end = end, end + slab.num_rows
        found = groups.feed(_spelled(slab, members), numbers[start:end])
        if len(found.rows):
            yield found


def _marked_batches(
    loaded: LoadedType, marked: Mask, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    last = int(marked.size - np.argmax(marked[::-1]))
    for start, batch in loaded.batches(schema.names):
        own = marked[start : start + batch.num_rows]
        if own.any():
            kept = batch.filter(pa.array(own))
            yield pa.RecordBatch.from_arrays(kept.columns, schema=schema)
        if start + batch.num_rows >= last:
            return


def _spelled(rows: pa.Table, members: Sequence[str]) -> pa.Array:
    """Return one text per tuple; different tuples have different ones."""
    texts = [spell(flat(rows[name])) for name in members]
    if len(texts) == 1:
        return texts[0]
    # A length before each member says where it ends, whatever is in it.
    parts = [
        pc.binary_join_element_wise(
            pc.binary_length(text).cast(pa.utf8()), text.cast(pa.utf8()), ":"
        )
        for text in texts
    ]
    return pc.binary_join_element_wise(*parts, "")


class RepeatGroups:
    """Rows by text, fed in ascending order."""

    def __init__(self) -> None:
        self._texts: pa.Array | None = None
        self._first = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)

    def feed(self, texts: pa.Array, rows: Integers) -> Repeats:
        """Take rows; return those whose text occurred before, here or earlier."""
        encoded = texts.dictionary_encode()
        groups = self._groups_of(encoded.dictionary)[encoded.indices.to_numpy()]
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        is_head = np.ones(len(order), np.bool_)
        is_head[1:] = ordered[1:] != ordered[:-1]
        heads = np.flatnonzero(is_head)
        previous = np.empty(len(rows), np.int64)
        previous[order[1:]] = rows[order[:-1]]
        previous[order[heads]] = self._last[ordered[heads]]
        is_new = self._first[ordered[heads]] < 0
        self._first[ordered[heads[is_new]]] = rows[order[heads[is_new]]]
        tails = np.append(heads[1:], len(order)) - 1
        self._last[ordered[tails]] = rows[order[tails]]
        again = previous >= 0
        return Repeats(rows[again], self._first[groups[again]], previous[again])

    def _groups_of(self, texts: pa.Array) -> Integers:
        """Give every text the number of its group."""
        if self._texts is None:
            groups = np.arange(len(texts))
            self._texts = texts
        else:
            known = len(self._texts)
            places = places_in(texts, self._texts)
            is_new = np.asarray(places.is_null())
            groups = places.fill_null(0).to_numpy().astype(np.int64)
            groups[is_new] = np.arange(known, known + np.count_nonzero(is_new))
            more = texts.filter(pa.array(is_new))
            self._texts = flat(pa.chunked_array([self._texts, more]))
        nowhere = np.full(len(self._texts) - len(self._first), -1, np.int64)
        self._first = np.concatenate([self._first, nowhere])
        self._last = np.concatenate([self._last, nowhere])
        return groups
