"""Sets of ids by hash are exact, however many ids share a hash."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.spark.load.hash_runs import common, counted, hash_ranges, repeated
from omnigraph.spark.load.key_set import KeySet, merged, numbered, ranges, sorted_run
from omnigraph.spark.load.plan import runs_of
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.store.connect import StoreSettings
from omnigraph.store.uri import parse_root
from omnigraph.write.load.check.hashing import HashScheme

texts = st.text(max_size=20) | st.sampled_from(["", "a", "a\0", "\0", "abcdefgh", "abcdefgh\0"])
bits = st.sampled_from([0, 1, 3, 64])


def test_texts_that_differ_have_different_hashes_and_equal_ones_the_same() -> None:
    found = ["", "\0", "a", "a\0", "ab", "abcdefgh", "abcdefghi", "x" * 200, "x" * 201]
    column = pa.array(["off", *found, *found])[1:]
    hashes = HashScheme(seed=7).texts(column)
    assert len(np.unique(hashes)) == len(found)
    assert (hashes[: len(found)] == hashes[len(found) :]).all()
    assert (HashScheme(seed=7).texts(column.cast(pa.large_utf8())) == hashes).all()
    assert (HashScheme(seed=8).texts(column) != hashes).all()


def test_tuples_are_hashed_by_spelling_and_null_exempts() -> None:
    columns = [pa.array(["a", "a", None, "ab"]), pa.array([1, 1, 1, None], pa.int32())]
    hashes, valid = HashScheme().tuples(columns)
    assert valid.tolist() == [True, True, False, False]
    assert hashes[0] == hashes[1]
    other, _ = HashScheme().tuples([pa.array(["a1"]), pa.array([""])])
    assert hashes[0] != other[0]


@settings(max_examples=60)
@given(
    st.lists(st.lists(texts, max_size=8), min_size=1, max_size=4),
    st.lists(texts, max_size=12),
    bits,
    st.integers(1, 5),
)
def test_a_set_contains_exactly_its_ids(
    runs: list[list[str]], wanted: list[str], hash_bits: int, parts: int
) -> None:

    scheme = HashScheme(seed=3, bits=hash_bits)
    with TemporaryDirectory() as folder:
        files = SideFiles(StoreSettings(parse_root(folder), {}, "process"), "01A")
        tables, first = [], 0
        for ids in runs:
            column = pa.array(ids, pa.utf8())
            run = sorted_run(scheme.texts(column), column, np.arange(len(ids)))
            tables.append(numbered(run, first))
            first += len(ids)
        names = tuple(files.write("set", merged(tables, within)) for within in ranges(parts))
        known = KeySet(files, scheme, names)
        everything = [one for ids in runs for one in ids]
        asked = pa.array(wanted + everything, pa.utf8())
        expected = [one in everything for one in asked.to_pylist()]
        assert known.contains(asked).tolist() == expected
        for rows in (known.rows_of(asked), known.rows_of_some(asked)):
            for text, row in zip(asked.to_pylist(), rows.tolist(), strict=True):
                assert (row == -1) if text not in everything else everything[row] == text
        shared = sum(len(found) for found in known.shared_hashes())
        distinct = pa.array(sorted(set(everything)), pa.utf8())
        hashes = scheme.texts(distinct)
        _, counts = np.unique(hashes, return_counts=True)
        assert shared == np.count_nonzero(counts > 1)
        files.remove()
        assert not Path(folder, files.folder).exists() or not any(
            Path(folder, files.folder).iterdir()
        )


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4),
    st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4),
    st.integers(1, 4),
)
def test_repeated_common_and_counted_hashes_are_found_range_by_range(
    ours: list[list[int]], theirs: list[list[int]], hashes_max: int
) -> None:
    def tables(runs: list[list[int]]) -> list[pa.Table]:
        spread = [np.sort(np.array(run, np.uint64) * np.uint64(1 << 60)) for run in runs]
        return [pa.table({"hash": run, "count": np.ones(len(run), np.int64)}) for run in spread]

    left, right = tables(ours), tables(theirs)
    own = [one for run in ours for one in run]
    other = [one for run in theirs for one in run]
    within = hash_ranges(left, right, hashes_max=hashes_max)
    again = [int(one >> np.uint64(60)) for part in within for one in repeated(left, part)]
    assert again == sorted({one for one in own if own.count(one) > 1})
    both = [int(one >> np.uint64(60)) for part in within for one in common(left, right, part)]
    assert both == sorted({*own} & {*other})
    sums = {}
    for part in within:
        hashes, counts = counted(left, part)
        sums |= {int(h >> np.uint64(60)): int(n) for h, n in zip(hashes, counts, strict=True)}
    assert sums == {one: own.count(one) for one in own}


@given(st.lists(st.integers(1, 50), unique=True))
def test_positions_are_kept_as_runs(positions: list[int]) -> None:
    ordered = np.array(sorted(positions), np.int64)
    runs = runs_of(ordered)
    assert runs.at(np.arange(len(ordered))).tolist() == ordered.tolist()
