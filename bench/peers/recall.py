"""How many of the truly nearest rows a vector search has found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.peers.dataset import Data

WANTED = 10


def recall(data: Data, found: Callable[[int], list[str]]) -> float:
    """Compare with brute force over the people of each query's city; 1 is everything."""
    person = data.read("person", ["id", "city", "embedding"])
    ids = np.array(person["id"].to_pylist())
    cities = np.array(person["city"].to_pylist())
    flat = person["embedding"].combine_chunks().flatten().to_numpy()
    vectors = flat.reshape(len(ids), -1)
    hits = 0
    for number, query in enumerate(data.vectors):
        rows = np.flatnonzero(cities == data.cities[number])
        nearness = vectors[rows] @ np.array(query, np.float32)
        best = ids[rows[np.argsort(-nearness)[:WANTED]]]
        hits += len(set(best.tolist()) & set(found(number)))
    return hits / (WANTED * len(data.vectors))
