"""What every engine of the query benchmark has in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.peers.dataset import Data

Answer = Any
"""Rows as the engine gives them; `check` reads them outside of the measured time."""


@dataclass(frozen=True)
class Work:
    """One question: how it is asked, and a number that all engines must agree on."""

    ask: Callable[[int], Answer]
    """Answers for the `i`-th input."""
    check: Callable[[Answer], int]
    inputs: int
    """How many inputs there are; 1 when nothing varies."""


@dataclass(frozen=True)
class Engine:
    """An open database."""

    works: Mapping[str, Work]
    facts: Callable[[], dict[str, float]] = dict
    """Things that are not times, such as bytes of memory per edge; asked at the end."""


def keyed(data: Data, ask: Callable[[str], Answer], check: Callable[[Answer], int]) -> Work:
    """Ask about each of the keys."""
    return Work(lambda i: ask(data.keys[i]), check, len(data.keys))


def once(ask: Callable[[], Answer], check: Callable[[Answer], int]) -> Work:
    """Ask something that has no input."""
    return Work(lambda _: ask(), check, 1)


# -- numbers to agree on ---------------------------------------------------------------------------


def people(ids: Sequence[str]) -> int:
    """Add up people: who they are and how many, in no order."""
    return sum(int(one[1:]) + 1 for one in ids)


def counted(rows: Sequence[Sequence[Any]]) -> int:
    """Add up people with a number each, in their order."""
    return sum((place + 1) * (int(row[0][1:]) + int(row[1])) for place, row in enumerate(rows))


def averages(rows: Sequence[Sequence[Any]]) -> int:
    """Add up groups with an average each, in no order."""
    return sum(int(row[0][4:]) + round(row[1] * 1e6) for row in rows)


def scores(found: Sequence[float]) -> int:
    """Add up scores: which of several equally good rows comes is not said."""
    return round(sum(found) * 100)
