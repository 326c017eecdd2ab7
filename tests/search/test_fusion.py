"""Rank fusion against a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.search.text.fusion import distinct_in_order, fuse

RANKINGS = st.lists(st.integers(0, 9), max_size=12)


def model(arms: list[list[int]], k: float, weights: list[float]) -> list[tuple[int, float]]:
    seen: dict[int, float] = {}
    for arm, weight in zip(arms, weights, strict=True):
        ranked = list(dict.fromkeys(arm))
        for rank, entity in enumerate(ranked, start=1):
            seen[entity] = seen.get(entity, 0.0) + weight / (k + rank)
    return sorted(seen.items(), key=lambda item: -item[1])


def arrays(arms: list[list[int]]) -> list[np.ndarray]:
    return [np.array(arm, np.int64) for arm in arms]


@given(RANKINGS, RANKINGS, st.floats(0.5, 100))
def test_fusion_is_the_sum_of_reciprocal_ranks(
    first: list[int], second: list[int], k: float
) -> None:
    fused = fuse(arrays([first, second]), k=k, weights=[1.0, 1.0])
    expected = model([first, second], k, [1.0, 1.0])
    assert fused.entities.tolist() == [entity for entity, _ in expected]
    np.testing.assert_allclose(fused.scores, [score for _, score in expected])


@given(st.lists(RANKINGS, min_size=1, max_size=4), st.data())
def test_weights_scale_their_arm(arms: list[list[int]], data: st.DataObject) -> None:
    weight = st.sampled_from([0.0, 0.5, 1.0, 3.0])
    weights = data.draw(st.lists(weight, min_size=len(arms), max_size=len(arms)))
    fused = fuse(arrays(arms), k=60, weights=weights)
    expected = model(arms, 60, weights)
    assert fused.entities.tolist() == [entity for entity, _ in expected]


def test_equal_scores_keep_the_first_arm_in_front() -> None:
    fused = fuse(arrays([[7, 3], [5, 9]]), k=60, weights=[1, 1])
    assert fused.entities.tolist() == [7, 5, 3, 9]
    fused = fuse(arrays([[1, 2], [2, 1]]), k=60, weights=[1, 1])
    assert fused.entities.tolist() == [1, 2]


@given(RANKINGS)
def test_ranks_count_first_appearances(arm: list[int]) -> None:
    assert distinct_in_order(np.array(arm, np.int64)).tolist() == list(dict.fromkeys(arm))


def test_arms_and_weights_must_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        fuse(arrays([[1], [2]]), k=60, weights=[1.0])
