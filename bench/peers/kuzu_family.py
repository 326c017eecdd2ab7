"""Kuzu and its successor Ladybug: one dialect of Cypher, two libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.dataset import Data
from bench.peers.engine import Engine, Work, averages, counted, keyed, once, people

_BUFFER_BYTES = 4 << 30
_COPIES = (
    ("Person", "person"),
    ("Company", "company"),
    ("Knows", "knows"),
    ("WorksAt", "works_at"),
)
_SCHEMA = (
    "CREATE NODE TABLE Company(id STRING PRIMARY KEY, industry STRING)",
    "CREATE REL TABLE Knows(FROM Person TO Person, since INT32)",
    "CREATE REL TABLE WorksAt(FROM Person TO Company, since INT32)",
)
_HOP = "-[:Knows]->"
_POINT = "MATCH (a:Person {id: $k}) RETURN a.id, a.name, a.age, a.city"
_TWO = f"MATCH (a:Person {{id: $k}}){_HOP}(:Person){_HOP}(x:Person) RETURN DISTINCT x.id"
_THREE = (
    f"MATCH (a:Person {{id: $k}}){_HOP}(:Person){_HOP}(:Person){_HOP}(x:Person)"
    " RETURN count(DISTINCT x)"
)
_REACH = "MATCH (a:Person {id: $k})-[:Knows* SHORTEST 1..4]->(x:Person) RETURN count(x)"
_FRIEND_AGE = f"MATCH (a:Person){_HOP}(x:Person) RETURN a.city, avg(x.age)"
_TOP20 = (
    f"MATCH (a:Person){_HOP}(x:Person) RETURN a.id, count(*) AS c ORDER BY c DESC, a.id LIMIT 20"
)
_NOBODY = f"MATCH (a:Person) WHERE NOT EXISTS {{ MATCH (a){_HOP}(:Person) }} RETURN count(*)"
_CITY_AGE = "MATCH (a:Person) RETURN a.city, avg(a.age)"


def build_with(library: str, data: Data, root: Path) -> None:
    connection = _connected(library, root)
    columns = data.read("person").schema.names
    types = {"age": "INT32", "embedding": "FLOAT[64]"}
    declared = ", ".join(f"{name} {types.get(name, 'STRING')}" for name in columns)
    connection.execute(f"CREATE NODE TABLE Person({declared}, PRIMARY KEY (id))")
    for statement in _SCHEMA:
        connection.execute(statement)
    for table, file in _COPIES:
        connection.execute(f"COPY {table} FROM '{data.path(file)}'")
    connection.execute("CHECKPOINT")


def opened_with(library: str, data: Data, root: Path) -> Engine:
    connection = _connected(library, root)

    def rows(statement: str) -> list[list[Any]]:
        found: list[list[Any]] = connection.execute(statement).get_all()
        return found

    def by_key(statement: str, check: Callable[[Any], int]) -> Work:
        prepared = None

        def ask(key: str) -> list[list[Any]]:
            # Prepared at the first use, so that opening does not pay for other questions.
            nonlocal prepared
            prepared = prepared or connection.prepare(statement)
            found: list[list[Any]] = connection.execute(prepared, {"k": key}).get_all()
            return found

        return keyed(data, ask, check)

    return Engine(
        {
            "point": by_key(_POINT, _people),
            "two_hop": by_key(_TWO, _people),
            "three_hop": by_key(_THREE, _number),
            "reach": by_key(_REACH, _number),
            "friend_age": once(lambda: rows(_FRIEND_AGE), averages),
            "top20": once(lambda: rows(_TOP20), counted),
            "nobody": once(lambda: rows(_NOBODY), _number),
            "city_age": once(lambda: rows(_CITY_AGE), averages),
        }
    )


def _connected(library: str, root: Path) -> Any:
    module = importlib.import_module(library)
    database = module.Database(str(root / "db"), buffer_pool_size=_BUFFER_BYTES)
    return module.Connection(database)


def _people(rows: list[list[Any]]) -> int:
    return people([row[0] for row in rows])


def _number(rows: list[list[Any]]) -> int:
    return int(rows[0][0])
