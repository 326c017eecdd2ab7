"""DuckDB on tables of its own."""

from __future__ import annotations

import importlib
from pathlib import Path

from bench.peers import sql
from bench.peers.dataset import TABLES, Data
from bench.peers.engine import Engine

NAME = "duckdb"
NEEDS = (NAME,)


def build(data: Data, root: Path) -> None:
    connection = importlib.import_module(NEEDS[0]).connect(str(root / "db"))
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{data.path(table)}'")
    connection.execute("CREATE UNIQUE INDEX person_id ON person(id)")
    connection.close()


def opened(data: Data, root: Path) -> Engine:
    connection = importlib.import_module(NEEDS[0]).connect(str(root / "db"), read_only=True)

    def run(statement: str, values: tuple[str, ...]) -> sql.Rows:
        rows: sql.Rows = connection.execute(statement, values).fetchall()
        return rows

    return sql.engine(data, run, left_out=("reach",))
