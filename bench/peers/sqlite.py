"""SQLite with edges clustered by `(src, dst)`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from bench.peers import sql
from bench.peers.dataset import Data
from bench.peers.engine import Engine

NAME = "sqlite"
NEEDS = ("sqlite3",)
_SCHEMA = """
CREATE TABLE person(id TEXT PRIMARY KEY, name TEXT, age INTEGER, city TEXT) WITHOUT ROWID;
CREATE TABLE knows(src TEXT, dst TEXT, since INTEGER, PRIMARY KEY (src, dst)) WITHOUT ROWID;
CREATE TABLE works_at(src TEXT, dst TEXT, since INTEGER, PRIMARY KEY (src, dst)) WITHOUT ROWID;
"""


def build(data: Data, root: Path) -> None:
    connection = sqlite3.connect(root / "db")
    connection.executescript(_SCHEMA)
    for table, columns in (
        ("person", ["id", "name", "age", "city"]),
        ("knows", ["src", "dst", "since"]),
        ("works_at", ["src", "dst", "since"]),
    ):
        # In the order of the key, pages are filled one after the other.
        marks = ", ".join("?" * len(columns))
        rows = data.read(table, columns).sort_by([(name, "ascending") for name in columns[:2]])
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", _tuples(rows))
    connection.commit()
    connection.execute("ANALYZE")
    connection.close()


def _tuples(rows: pq.Table) -> Iterator[tuple[object, ...]]:
    for batch in rows.to_batches(max_chunksize=100_000):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def opened(data: Data, root: Path) -> Engine:
    connection = sqlite3.connect(root / "db")
    connection.execute("PRAGMA cache_size = -1000000")
    connection.execute("PRAGMA mmap_size = 4000000000")

    def run(statement: str, values: tuple[str, ...]) -> sql.Rows:
        return connection.execute(statement, values).fetchall()

    return sql.engine(data, run, left_out=("reach",))
