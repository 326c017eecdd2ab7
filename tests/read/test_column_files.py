"""Columns in files that processes map: the same values, and nothing depends on a file."""

from __future__ import annotations

import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph, OpenMode
from omnigraph.read.access import column_files
from omnigraph.read.access.column_cache import USES_MIN
from omnigraph.read.access.column_files import FOLDER, ColumnFiles
from omnigraph.store.lance.handle import LanceHandle

MIB = 1 << 20
PARTS = ("state", "main", "1", "schema", "values", "name")
ROWS = 20_000
SCHEMA = "node Item { key: String @key  shown: String  stored: String  size: I64 }"
RENAMES = (
    'node Item { key: String @key  old: String @rename_from("shown")  stored: String  size: I64 }',
    'node Item { key: String @key  old: String  shown: String @rename_from("stored")  size: I64 }',
)
READS = """\
query point($k: String) { match { $i: Item { key: $k } } return { $i.shown, $i.size } }
query sizes() { match { $i: Item } return { sum($i.size) as total, count($i) as items } }
"""


def arrays(rows: int = ROWS, first: int = 0) -> dict[str, pa.Array]:
    numbers = np.arange(first, first + rows)
    texts = [None if number % 7 == 0 else f"text {number}" for number in numbers.tolist()]
    return {"numbers": pa.array(numbers), "texts": pa.array(texts)}


def files(folder: Path, bytes_max: int = 64 * MIB) -> ColumnFiles:
    return ColumnFiles(folder, bytes_max)


def listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_another_process_finds_what_one_has_written(tmp_path: Path) -> None:
    folder = tmp_path / "columns"
    given = arrays()
    assert files(folder).load(PARTS) is None
    assert files(folder).shared(PARTS, given) == given
    assert files(folder).load(PARTS) == given
    assert files(folder).load((*PARTS[:-1], "other")) is None
    (path,) = listed(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_all_map_the_file_that_was_there_first(tmp_path: Path) -> None:
    first, second = files(tmp_path), files(tmp_path)
    first.shared(PARTS, arrays())
    inode = listed(tmp_path)[0].stat().st_ino
    second.shared(PARTS, arrays())
    # As if the other process had looked before the file was there.
    second._write(second._path(PARTS), arrays())
    assert [path.stat().st_ino for path in listed(tmp_path)] == [inode]


def test_a_slice_is_written_without_the_rest(tmp_path: Path) -> None:
    given = {name: array.slice(5, 10_000) for name, array in arrays().items()}
    assert files(tmp_path).shared(PARTS, given) == given
    assert files(tmp_path).load(PARTS) == given


def test_mapped_values_do_not_change(tmp_path: Path) -> None:
    found = files(tmp_path).shared(PARTS, arrays())
    assert not found["numbers"].to_numpy().flags.writeable
    listed(tmp_path)[0].unlink()
    assert found == arrays()


@pytest.mark.parametrize("at", [3, 9, 70, -9])
def test_a_damaged_file_is_not_used(tmp_path: Path, at: int) -> None:
    files(tmp_path).shared(PARTS, arrays())
    (path,) = listed(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert files(tmp_path).load(PARTS) is None
    assert files(tmp_path).shared(PARTS, arrays()) == arrays()
    assert files(tmp_path).load(PARTS) == arrays()


@pytest.mark.parametrize("length", [0, 10, 64, 1_000])
def test_a_short_file_is_not_used(tmp_path: Path, length: int) -> None:
    files(tmp_path).shared(PARTS, arrays())
    os.truncate(listed(tmp_path)[0], length)
    assert files(tmp_path).load(PARTS) is None


def test_small_and_huge_columns_have_no_file(tmp_path: Path) -> None:
    small = {"values": pa.array([1, 2])}
    assert files(tmp_path).shared(PARTS, small) == small
    assert files(tmp_path, bytes_max=100_000).shared(PARTS, arrays()) == arrays()
    assert listed(tmp_path) == []


def test_a_folder_that_cannot_be_written_costs_nothing_but_memory(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("no folder")
    assert files(place).shared(PARTS, arrays()) == arrays()
    assert files(place).load(PARTS) is None


def test_what_a_killed_process_has_left_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only files that are complete were counted, so a folder could outgrow its bound."""
    folder = tmp_path / "columns"

    def killed(source: str, target: object) -> None:
        raise SystemExit(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        patched.setattr(Path, "unlink", lambda _: None)
        with pytest.raises(SystemExit):
            files(folder).shared(PARTS, arrays())
    (part,) = listed(folder)
    files(folder).shared((*PARTS, "soon after"), arrays())
    assert part in listed(folder), "another process may be writing it"
    os.utime(part, (0, 0))
    files(folder).shared((*PARTS, "much later"), arrays())
    assert [path.suffix for path in listed(folder)] == [".column", ".column"]


def test_the_folder_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    size = sum(array.nbytes for array in arrays().values())
    bounded = files(tmp_path, bytes_max=3 * size + size // 2)
    for number in range(3):
        bounded.shared((*PARTS, str(number)), arrays(first=number))
        os.utime(bounded._path((*PARTS, str(number))), ns=(number, number))
    assert bounded.load((*PARTS, "0")) == arrays(first=0)
    bounded.shared((*PARTS, "3"), arrays(first=3))
    assert bounded.load((*PARTS, "1")) is None
    assert all(bounded.load((*PARTS, number)) is not None for number in "023")


# -- graphs ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "columns"
    monkeypatch.setenv(FOLDER, str(place))
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "g.omni"
    rows = pa.table(
        {
            "key": [f"i{number}" for number in range(ROWS)],
            "shown": [f"shown {number}" for number in range(ROWS)],
            "stored": [f"stored {number}" for number in range(ROWS)],
            "size": pa.array(range(ROWS), pa.int64()),
        }
    )
    with Graph.init(place, SCHEMA, durability="process", auto_optimize=False) as graph:
        graph.load_tables(nodes={"Item": rows}, mode="append")
    return place


def read(graph: Graph) -> list[Any]:
    """Read often enough for everything to be cached; return the answers."""
    points = [
        graph.query(READS, "point", {"k": f"i{number}"}).to_arrow().to_pylist()
        for number in range(2 * USES_MIN)
    ]
    return [*points, graph.query(READS, "sizes").to_arrow().to_pylist()]


def test_a_second_process_maps_columns_instead_of_reading_them(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: Counter[tuple[str, ...] | None] = Counter()
    batches = LanceHandle.batches

    def counted(self: LanceHandle, request: Any) -> Any:
        if self.at.location.startswith("nodes") and request.row_filter is None:
            scanned[request.columns] += 1
        return batches(self, request)

    monkeypatch.setattr(LanceHandle, "batches", counted)
    with Graph.open(root, mode=OpenMode.READ_ONLY) as graph:
        expected = read(graph)
    assert scanned
    written = listed(folder)
    scanned.clear()
    with Graph.open(root, mode=OpenMode.READ_ONLY) as graph:
        assert read(graph) == expected
    assert scanned == Counter()
    assert listed(folder) == written


def test_a_name_that_stands_for_another_column_has_another_file(root: Path, folder: Path) -> None:
    with Graph.open(root, durability="process") as graph:
        assert read(graph)[1] == [{"i.shown": "shown 1", "i.size": 1}]
        # No row is written: the files of the dataset stay the same.
        for schema in RENAMES:
            graph.schema.apply(schema)
        assert read(graph)[1] == [{"i.shown": "stored 1", "i.size": 1}]
    with Graph.open(root, durability="process") as graph:
        assert read(graph)[1] == [{"i.shown": "stored 1", "i.size": 1}]


def test_reads_after_writes_of_several_handles(root: Path, folder: Path) -> None:
    change = 'query m($s: I64) { update Item set { size: $s } where key = "i1" }'
    with (
        Graph.open(root, durability="process") as writer,
        Graph.open(root, mode=OpenMode.READ_ONLY) as reader,
    ):
        for size in range(100, 104):
            writer.mutate(change, params={"s": size})
            for graph in (reader, writer):
                found = read(graph)
                assert found[1] == [{"i.shown": "shown 1", "i.size": size}]
                assert found[-1][0]["total"] == sum(range(ROWS)) - 1 + size


def test_damaged_files_do_not_change_answers(root: Path, folder: Path) -> None:
    with Graph.open(root, mode=OpenMode.READ_ONLY) as graph:
        expected = read(graph)
    for path in listed(folder):
        path.write_bytes(path.read_bytes()[: column_files.BYTES_MIN // 2])
    with Graph.open(root, mode=OpenMode.READ_ONLY) as graph:
        assert read(graph) == expected
