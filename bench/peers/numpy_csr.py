"""Hand-written NumPy adjacency in memory: the floor, not a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.peers.dataset import Data
from bench.peers.engine import Engine, averages, counted, keyed, once, people

NAME = "numpy"
NEEDS = ("numpy",)
_MARKED_MIN = 20_000


def build(data: Data, root: Path) -> None:
    """Nothing to make: everything is in memory."""


class Graph:
    """One direction, no edge numbers."""

    def __init__(self, data: Data) -> None:
        person = data.read("person", ["id", "name", "age", "city"])
        self.ids = person["id"].combine_chunks()
        self.names = person["name"].combine_chunks()
        self.count = len(self.ids)
        knows = data.read("knows", ["src", "dst"])
        start, end = (
            pc.index_in(knows[name], self.ids).to_numpy().astype(np.int32)
            for name in ("src", "dst")
        )
        self.indptr = np.zeros(self.count + 1, np.int64)
        np.cumsum(np.bincount(start, minlength=self.count), out=self.indptr[1:])
        self.neighbours = end[np.argsort(start, kind="stable")]
        places = pc.index_in(pa.array(data.keys), self.ids).to_pylist()
        self.place = dict(zip(data.keys, places, strict=True))
        self.marks = np.zeros(self.count, np.uint8)
        cities = person["city"].combine_chunks().dictionary_encode()
        self.cities, self.city = cities.dictionary.to_pylist(), cities.indices.to_numpy()
        self.age = person["age"].to_numpy()

    def expand(self, frontier: np.ndarray) -> np.ndarray:
        first = self.indptr[frontier]
        counts = self.indptr[frontier + 1] - first
        shift = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return self.neighbours[np.arange(int(counts.sum())) + shift]

    def distinct(self, nodes: np.ndarray) -> np.ndarray:
        if len(nodes) < _MARKED_MIN:
            return np.unique(nodes)
        self.marks[nodes] = 1
        found = np.flatnonzero(self.marks)
        self.marks[found] = 0
        return found

    def hops(self, key: str, count: int) -> np.ndarray:
        frontier = np.array([self.place[key]])
        for _ in range(count):
            frontier = self.distinct(self.expand(frontier))
        return frontier

    def reach(self, key: str) -> int:
        seen = np.zeros(self.count, np.bool_)
        frontier = np.array([self.place[key]])
        seen[frontier] = True
        for _ in range(4):
            found = self.expand(frontier)
            frontier = self.distinct(found[~seen[found]])
            seen[frontier] = True
        return int(seen.sum()) - 1

    def top(self) -> list[tuple[str, int]]:
        degree = np.diff(self.indptr)
        bound = np.partition(degree, -20)[-20]
        chosen = np.flatnonzero(degree >= bound)
        names = self.ids.take(pa.array(chosen)).to_pylist()
        rows = zip(names, degree[chosen].tolist(), strict=True)
        return sorted(rows, key=lambda row: (-row[1], row[0]))[:20]

    def by_city(self, starts: np.ndarray, ages: np.ndarray) -> list[tuple[str, float]]:
        city = self.city[starts]
        means = np.bincount(city, weights=ages) / np.bincount(city)
        return list(zip(self.cities, means.tolist(), strict=True))


def opened(data: Data, root: Path) -> Engine:  # noqa: ARG001 - engines have one form
    graph = Graph(data)
    everybody = np.arange(graph.count)

    def texts(found: np.ndarray) -> pa.Array:
        return graph.ids.take(pa.array(found))

    def check(found: Any) -> int:
        return people(found.to_pylist())

    def friends() -> list[tuple[str, float]]:
        starts = np.repeat(everybody, np.diff(graph.indptr))
        return graph.by_city(starts, graph.age[graph.neighbours])

    return Engine(
        {
            "two_hop": keyed(data, lambda key: texts(graph.hops(key, 2)), check),
            "three_hop": keyed(data, lambda key: len(graph.hops(key, 3)), int),
            "reach": keyed(data, graph.reach, int),
            "friend_age": once(friends, averages),
            "top20": once(graph.top, counted),
            "nobody": once(lambda: int((np.diff(graph.indptr) == 0).sum()), int),
            "city_age": once(lambda: graph.by_city(everybody, graph.age), averages),
        }
    )
