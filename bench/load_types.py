"""Peak memory of a load of many types at once, against Kuzu that copies them one by one.

    .venv/bin/python -m bench.load_types [--scale 1.0] [--rounds 1]

Eight types of nodes and twenty-three of edges in the proportions of a social network: at scale 1.0
three million nodes and seventeen million edges, a Parquet file for each type. Every side runs in a
process of its own; Kuzu is in the environment that `make bench-peers` makes. The bar is 1.2 times
Kuzu's memory. Ours checks all ends, commits once and leaves the topologies; Kuzu commits each type.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.load import PEER_PYTHON, Folders, Run, child

BAR: Final = 1.2
NODES: Final = {
    "Comment": 2_050_000,
    "Forum": 90_000,
    "Organisation": 8_000,
    "Person": 10_000,
    "Place": 1_500,
    "Post": 1_000_000,
    "Tag": 16_000,
    "TagClass": 70,
}
EDGES: Final = {
    "CommentHasCreator": ("Comment", "Person", 2_050_000),
    "CommentHasTag": ("Comment", "Tag", 2_700_000),
    "CommentIsLocatedIn": ("Comment", "Place", 2_050_000),
    "CommentReplyOf": ("Comment", "Comment", 1_040_000),
    "CommentReplyOfPost": ("Comment", "Post", 1_010_000),
    "ContainerOf": ("Forum", "Post", 1_000_000),
    "ForumHasTag": ("Forum", "Tag", 310_000),
    "HasInterest": ("Person", "Tag", 230_000),
    "HasMember": ("Forum", "Person", 1_600_000),
    "HasModerator": ("Forum", "Person", 90_000),
    "HasType": ("Tag", "TagClass", 16_000),
    "IsPartOf": ("Place", "Place", 1_500),
    "IsSubclassOf": ("TagClass", "TagClass", 70),
    "Knows": ("Person", "Person", 180_000),
    "Likes": ("Person", "Post", 750_000),
    "LikesComment": ("Person", "Comment", 1_440_000),
    "OrganisationIsLocatedIn": ("Organisation", "Place", 8_000),
    "PersonIsLocatedIn": ("Person", "Place", 10_000),
    "PostHasCreator": ("Post", "Person", 1_000_000),
    "PostHasTag": ("Post", "Tag", 710_000),
    "PostIsLocatedIn": ("Post", "Place", 1_000_000),
    "StudyAt": ("Person", "Organisation", 8_000),
    "WorkAt": ("Person", "Organisation", 22_000),
}
WORDS: Final = ("about", "Maybe", "thanks", "good", "one", "cool", "the", "of", "no way!", "fine")

SCHEMA: Final = "\n".join(
    [f"node {name} {{ number: I64 @key  created: I64  content: String? }}" for name in NODES]
    + [f"edge {name}: {one} -> {other} {{ since: I64 }}" for name, (one, other, _) in EDGES.items()]
)
TABLES: Final = [
    *(
        f"CREATE NODE TABLE {name}(number INT64 PRIMARY KEY, created INT64, content STRING)"
        for name in NODES
    ),
    *(
        f"CREATE REL TABLE {name}(FROM {one} TO {other}, since INT64)"
        for name, (one, other, _) in EDGES.items()
    ),
]

LOAD_TYPES: Final = """
from omnigraph import Graph
folder, schema, files = sys.argv[1:]
with Graph.init(folder, schema) as graph, Measured():
    graph.load(json.loads(files), mode="append", engine="local")
"""
COPY_TYPES: Final = """
import kuzu
folder, tables, files = sys.argv[1:]
connection = kuzu.Connection(kuzu.Database(folder))
for statement in json.loads(tables):
    connection.execute(statement)
with Measured():
    for name, path in json.loads(files).items():
        connection.execute(f"COPY {name} FROM '{path}'")
    connection.execute("CHECKPOINT")
"""


def rows_of(count: int, scale: float) -> int:
    """Return how many rows a type has; small types keep some."""
    return max(70, int(count * scale))


def texts(random: np.random.Generator, count: int) -> pa.Array:
    """Return texts of 1 to 26 words, every one different."""
    words = np.array(WORDS)
    lengths = random.integers(0, 26, count)
    picked = words[random.integers(0, len(words), int(lengths.sum()))].tolist()
    ends = np.cumsum(lengths).tolist()
    starts = [0, *ends[:-1]]
    pairs = enumerate(zip(starts, ends, strict=True))
    return pa.array([" ".join([str(i), *picked[low:high]]) for i, (low, high) in pairs], pa.utf8())


def write_files(folder: Path, scale: float) -> dict[str, str]:
    """Write a file for each type, nodes first, and return where they are."""
    random = np.random.default_rng(7)
    files: dict[str, str] = {}

    def write(name: str, table: pa.Table) -> None:
        files[name] = str(folder / f"{name}.parquet")
        pq.write_table(table, files[name], row_group_size=100_000)

    for name, count in NODES.items():
        rows = rows_of(count, scale)
        columns = {
            "number": pa.array(np.arange(rows) * 7 + 1),
            "created": pa.array(random.integers(1 << 40, 1 << 41, rows)),
            "content": texts(random, rows),
        }
        write(name, pa.table(columns))
    for name, (one, other, count) in EDGES.items():
        rows = rows_of(count, scale)
        starts, ends = (
            pa.array(random.integers(0, rows_of(NODES[end], scale), rows) * 7 + 1)
            for end in (one, other)
        )
        since = pa.array(random.integers(1 << 40, 1 << 41, rows))
        write(name, pa.table({"from": starts, "to": ends, "since": since}))
    return files


def measure(folder: Path, scale: float, rounds: int) -> None:
    """Load the same files with both, in turns."""
    files = json.dumps(write_files(folder, scale))
    folders = Folders(folder)
    runs: dict[str, list[Run]] = {"ours": [], "Kuzu": []}
    for _ in range(rounds):
        runs["ours"].append(child(sys.executable, LOAD_TYPES, folders.new(), SCHEMA, files))
        if PEER_PYTHON.exists():
            tables = json.dumps(TABLES)
            runs["Kuzu"].append(child(str(PEER_PYTHON), COPY_TYPES, folders.new(), tables, files))
    medians = {
        (name, what): statistics.median(getattr(run, what) for run in found)
        for name, found in runs.items()
        if found
        for what in ("peak_mb", "seconds", "cpu_s")
    }
    for name in ("ours", "Kuzu"):
        if (name, "peak_mb") in medians:
            peak, seconds, cpu = (medians[name, what] for what in ("peak_mb", "seconds", "cpu_s"))
            print(f"| {name} | {peak:.0f} MB | {seconds:.1f} s | {cpu:.1f} s of processors |")
    if ("Kuzu", "peak_mb") not in medians:
        print(f"there is no {PEER_PYTHON.name}; `make bench-peers` installs Kuzu")
        return
    ratio = medians["ours", "peak_mb"] / medians["Kuzu", "peak_mb"]
    print(f"memory: ratio {ratio:.2f} (bar {BAR}) {'ok' if ratio <= BAR else 'ABOVE THE BAR'}")


def main() -> None:
    """Measure in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.scale, options.rounds)


if __name__ == "__main__":
    main()
