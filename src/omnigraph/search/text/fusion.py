"""Reciprocal rank fusion: one ranking from several of the same entities.

An entity of 1-based rank `r` in an arm gets `weight / (k + r)` from it, and nothing from an arm
that lacks it. The best sum comes first. Equal sums keep the order of first appearance: the first
arm in its order, then what only later arms have, in theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass

Entities = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fused:
    """Entities, best first, each with its score."""

    entities: Entities
    scores: NDArray[np.float64]


def distinct_in_order(entities: Entities) -> Entities:
    """Return each entity once, in order of first appearance: what its rank counts."""
    _, first = np.unique(entities, return_index=True)
    return entities[np.sort(first)]


def fuse(arms: Sequence[Entities], *, k: float, weights: Sequence[float]) -> Fused:
    """Fuse rankings; an entity that an arm repeats counts where it comes first."""
    ranked = [distinct_in_order(np.asarray(arm)) for arm in arms]
    entities = distinct_in_order(np.concatenate(ranked))
    # `entities` is in order of first appearance; `order` sorts it for the look-up of each arm.
    order = np.argsort(entities, kind="stable")
    scores = np.zeros(len(entities), dtype=np.float64)
    for arm, weight in zip(ranked, weights, strict=True):
        positions = order[np.searchsorted(entities, arm, sorter=order)]
        scores[positions] += weight / (k + np.arange(1, len(arm) + 1))
    best = np.argsort(-scores, kind="stable")
    return Fused(entities[best], scores[best])
