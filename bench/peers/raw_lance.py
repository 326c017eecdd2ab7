"""Pylance on the very datasets of our graph: the same files, versions and indexes, no graph."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from bench.peers.dataset import Data
from bench.peers.engine import Engine, Work, keyed, people, scores
from bench.peers.ours import NAME as OURS
from bench.peers.ours import PLACES, RECALL
from bench.peers.recall import recall

NAME = "pylance"
NEEDS = ("lance",)
_COLUMNS = ["id", "name", "age", "city"]
_REFINE = 10
"""As ours."""


def build(data: Data, root: Path) -> None:
    """Nothing to make: the graph's own datasets are read."""


def opened(data: Data, root: Path) -> Engine:
    lance = importlib.import_module(NEEDS[0])
    places = json.loads((root.parent / f"{OURS}-{data.size}" / PLACES).read_text())

    def dataset(key: str) -> Any:
        return lance.dataset(places[key]["uri"], version=places[key]["version"])

    person, knows = dataset("node:Person"), dataset("edge:Knows")

    def point(key: str) -> Any:
        return person.to_table(columns=_COLUMNS, filter=f"id = '{key}'")

    def hops(key: str, count: int) -> list[str]:
        frontier = [key]
        for _ in range(count):
            if frontier:
                asked = "src IN (" + ",".join(f"'{one}'" for one in frontier) + ")"
                found = knows.to_table(columns=["dst"], filter=asked)["dst"]
                frontier = pc.unique(found).to_pylist()
        return frontier

    def bm25(number: int) -> Any:
        text = lance.query.MatchQuery(data.texts[number], "bio")
        return person.to_table(columns=["id", "_score"], full_text_query=text, limit=10)

    def vector(number: int) -> Any:
        return person.to_table(
            columns=["id", "_distance"],
            nearest={
                "column": "embedding",
                "q": np.array(data.vectors[number], np.float32),
                "k": 10,
                "metric": "cosine",
                "refine_factor": _REFINE,
            },
            filter=f"city = '{data.cities[number]}'",
            prefilter=True,
        )

    works = {
        "point": keyed(data, point, lambda found: people(found["id"].to_pylist())),
        "two_hop": keyed(data, lambda key: hops(key, 2), people),
        "bm25": Work(bm25, lambda found: scores(found["_score"].to_pylist()), len(data.texts)),
    }
    if data.has_vectors:
        inputs = len(data.vectors)
        works["vector"] = Work(vector, lambda found: people(found["id"].to_pylist()), inputs)

    def facts() -> dict[str, float]:
        if not data.has_vectors:
            return {}
        return {RECALL: recall(data, lambda i: vector(i)["id"].to_pylist())}

    return Engine(works, facts)
