"""The questions in SQL, for engines with tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.peers.dataset import Data
from bench.peers.engine import Engine, Work, averages, counted, keyed, once, people

Rows = list[tuple[Any, ...]]
Run = Callable[[str, tuple[str, ...]], Rows]

_POINT = "SELECT id, name, age, city FROM person WHERE id = ?"
_FIRST = "h1 AS (SELECT dst FROM knows WHERE src = ?)"
_FRIEND_AGE = (
    "SELECT a.city, avg(b.age) FROM knows k JOIN person a ON a.id = k.src"
    " JOIN person b ON b.id = k.dst GROUP BY 1"
)
_TOP20 = "SELECT src, count(*) AS c FROM knows GROUP BY 1 ORDER BY c DESC, src LIMIT 20"
_NOBODY = (
    "SELECT count(*) FROM person p WHERE NOT EXISTS (SELECT 1 FROM knows k WHERE k.src = p.id)"
)
_CITY_AGE = "SELECT city, avg(age) FROM person GROUP BY 1"
_REACH = (
    "WITH RECURSIVE walk(id, hops) AS (SELECT ?, 0 UNION"
    " SELECT k.dst, w.hops + 1 FROM walk w JOIN knows k ON k.src = w.id WHERE w.hops < 4)"
    " SELECT count(DISTINCT id) FROM walk WHERE id <> ?"
)


def engine(data: Data, run: Run, *, left_out: tuple[str, ...] = ()) -> Engine:
    """Return the works that SQL can say; `left_out` are those that would take minutes."""

    def by_key(statement: str, check: Callable[[Rows], int], values: int = 1) -> Work:
        return keyed(data, lambda key: run(statement, (key,) * values), check)

    works = {
        "point": by_key(_POINT, _people),
        "two_hop": by_key(f"WITH {_FIRST}, {_next(2)} SELECT dst FROM h2", _people),
        "three_hop": by_key(
            f"WITH {_FIRST}, {_next(2)}, {_next(3)} SELECT count(*) FROM h3", _number
        ),
        "reach": by_key(_REACH, _number, values=2),
        "friend_age": once(lambda: run(_FRIEND_AGE, ()), averages),
        "top20": once(lambda: run(_TOP20, ()), counted),
        "nobody": once(lambda: run(_NOBODY, ()), _number),
        "city_age": once(lambda: run(_CITY_AGE, ()), averages),
    }
    return Engine({name: work for name, work in works.items() if name not in left_out})


def _next(hop: int) -> str:
    return f"h{hop} AS (SELECT DISTINCT k.dst FROM h{hop - 1} h JOIN knows k ON k.src = h.dst)"


def _people(rows: Rows) -> int:
    return people([row[0] for row in rows])


def _number(rows: Rows) -> int:
    return int(rows[0][0])
