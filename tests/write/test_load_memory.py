"""The memory of a load follows its batches, not its input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

RECORDS_SMALL, RECORDS_LARGE = 3_250_000, 13_000_000
"""About 250 MB and 1 GB."""
BYTES_PER_RECORD_MAX = 8
"""Room for a mark or two of every record. Both files are beyond the memory that a load may use for
hashes; kept in memory they would take 30 bytes of each record and more."""

SCHEMA = """
node Person { name: String @key  age: I32  city: String?  mail: String? @unique }
edge Knows: Person -> Person { since: I32 }
"""
CHILD = """
import sys
from omnigraph import Graph
folder, schema, path = sys.argv[1:]
with Graph.init(folder, schema, durability="process") as graph:
    result = graph.load(path, mode="append", engine="local")
    counts = [info.rows for info in graph.snapshot().open("node:Person").fragments()]
facts = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print([int(facts) * 1024, result.inserted, len(counts)])
"""


def write_records(path: Path, count: int) -> None:
    with path.open("wb") as file:
        for i in range(count // 2):
            data = {"name": f"p{i}", "age": i % 100, "city": f"c{i % 997}", "mail": f"{i}@x"}
            file.write(orjson.dumps({"type": "Person", "data": data}) + b"\n")
            edge = {"edge": "Knows", "from": f"p{i}", "to": f"p{i * 7 % (count // 2)}"}
            file.write(orjson.dumps({**edge, "data": {"since": 1990 + i % 36}}) + b"\n")


def load_in_child(folder: Path, records: int) -> tuple[int, int, int]:
    path = folder / f"{records}.jsonl"
    write_records(path, records)
    command = [sys.executable, "-c", CHILD, str(folder / f"{records}.omni"), SCHEMA, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    path.unlink()
    peak, inserted, fragments = json.loads(done.stdout.splitlines()[-1])
    return peak, inserted, fragments


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_load_of_a_gigabyte_needs_little_more_memory_than_a_quarter_of_it(
    tmp_path: Path,
) -> None:
    small, inserted_small, _ = load_in_child(tmp_path, RECORDS_SMALL)
    large, inserted_large, fragments = load_in_child(tmp_path, RECORDS_LARGE)
    assert (inserted_small, inserted_large) == (RECORDS_SMALL, RECORDS_LARGE)
    more = RECORDS_LARGE - RECORDS_SMALL
    assert large - small <= more * BYTES_PER_RECORD_MAX
    # Fragments of a million rows, not one per batch.
    assert fragments <= RECORDS_LARGE // 2 // 1_000_000 + 1
