"""Reading typed JSON Lines: ours against `pyarrow.json`, on the same files.

    .venv/bin/python bench/convert.py [records]

For each kind of record: seconds for `pyarrow.json.read_json`, for reading the same file here
(decode and convert), for the conversion alone, and the ratio of the first two. The bar is a ratio
of at most 4 (a quarter of the speed); `pyarrow.json` uses all cores and checks no types.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.json as pj

from omnigraph.schema.values.convert import convert_values, member_values
from omnigraph.schema.values.decode import decode_line_batches
from omnigraph.values import PropType, Scalar

RECORDS = 1_000_000
REPEATS = 5
BAR = 4.0

Make = Callable[[int], object]

FIELDS: dict[str, tuple[Scalar, Make]] = {
    "i64": (Scalar.I64, lambda i: i * 7919),
    "f64": (Scalar.F64, lambda _: random.random() * 1e4),
    "string": (Scalar.STRING, lambda i: f"name-{i}"),
    "datetime": (Scalar.DATETIME, lambda i: f"2026-03-{i % 28 + 1:02}T12:{i % 60:02}:07.123Z"),
    "bool": (Scalar.BOOL, lambda i: i % 3 == 0),
    "i32": (Scalar.I32, lambda i: i % 1000),
}

RECORD_KINDS: dict[str, tuple[str, ...]] = {
    "I64": ("i64",),
    "F64": ("f64",),
    "String": ("string",),
    "DateTime": ("datetime",),
    "Bool": ("bool",),
    "mixed (6 properties)": tuple(FIELDS),
}


def write_records(path: Path, names: tuple[str, ...], count: int) -> None:
    makers = [(name, FIELDS[name][1]) for name in names]
    with path.open("wb") as file:
        for i in range(count):
            file.write(orjson.dumps({name: make(i) for name, make in makers}) + b"\n")


def read_ours(path: Path, names: tuple[str, ...]) -> pa.Table:
    return pa.Table.from_batches(list(convert_batches(decode_batches(path), names)))


def decode_batches(path: Path) -> Iterator[list[object]]:
    with path.open("rb") as file:
        for batch in decode_line_batches(file):
            yield batch.values


def convert_batches(
    batches: Iterator[list[object]], names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    for records in batches:
        columns = [
            convert_values(member_values(records, name), PropType(FIELDS[name][0]), name)
            for name in names
        ]
        assert all(column.is_clean for column in columns)
        yield pa.record_batch([column.column for column in columns], list(names))


def seconds(*acts: Callable[[], object]) -> list[float]:
    """Best time of each; taken in lock, so that a busy machine hurts all of them."""
    best = [float("inf")] * len(acts)
    for _ in range(REPEATS):
        for place, act in enumerate(acts):
            start = time.perf_counter()
            act()
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def conversion_seconds(path: Path, names: tuple[str, ...]) -> float:
    total = 0.0
    for records in decode_batches(path):
        total += seconds(lambda batch=records: list(convert_batches(iter([batch]), names)))[0]
    return total


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    random.seed(1)
    print(f"{count:,} records, best of {REPEATS}")
    print(f"{'record':22} {'MB':>6} {'pyarrow.json':>13} {'ours':>8} {'convert':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for kind, names in RECORD_KINDS.items():
            path = Path(folder) / "records.jsonl"
            write_records(path, names, count)
            theirs, ours = seconds(
                lambda path=path: pj.read_json(path),
                lambda path=path, names=names: read_ours(path, names),
            )
            convert = conversion_seconds(path, names)
            verdict = "" if ours / theirs <= BAR else "  above the bar"
            print(
                f"{kind:22} {path.stat().st_size / 1e6:6.1f} {theirs:13.3f} {ours:8.3f} "
                f"{convert:8.3f} {ours / theirs:6.2f}{verdict}"
            )


if __name__ == "__main__":
    main()
