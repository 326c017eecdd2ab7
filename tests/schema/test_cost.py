"""The rules that decide whether stored rows have to be read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.catalog import Cardinality
from omnigraph.schema.ir.model import ConstraintIdentity
from omnigraph.schema.language.shape import Bound
from omnigraph.schema.language.tree import Number
from omnigraph.schema.migration.cost import changes_spelling, is_implied, is_loosened, is_widening
from omnigraph.values import PropType, Scalar

numbers = st.none() | st.integers(-3, 3) | st.sampled_from([-1.5, 0.0, 0.5, 2.0])
cardinalities = st.builds(
    lambda low, extra: Cardinality(low, None if extra is None else low + extra),
    st.integers(0, 3),
    st.none() | st.integers(0, 3),
)


def ranged(low: Number | None, high: Number | None, member: int = 1) -> ConstraintIdentity:
    return ConstraintIdentity("range", frozenset({member}), Bound.of(low), Bound.of(high))


def holds(value: float, low: Number | None, high: Number | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


@given(numbers, numbers, numbers, numbers)
def test_an_implied_range_is_never_broken(
    old_low: Number | None, old_high: Number | None, low: Number | None, high: Number | None
) -> None:
    if is_implied(ranged(low, high), [ranged(old_low, old_high)]):
        for value in [tenth / 4 for tenth in range(-20, 21)]:
            assert not holds(value, old_low, old_high) or holds(value, low, high)


@given(numbers, numbers, numbers, numbers)
def test_a_wider_range_is_implied(
    old_low: Number | None, old_high: Number | None, low: Number | None, high: Number | None
) -> None:
    wider_low = None if low is None or old_low is None else min(low, old_low)
    wider_high = None if high is None or old_high is None else max(high, old_high)
    assert is_implied(ranged(wider_low, wider_high), [ranged(old_low, old_high)])
    assert not is_implied(ranged(wider_low, wider_high, member=2), [ranged(old_low, old_high)])


@given(cardinalities, cardinalities)
def test_a_cardinality_is_loosened_exactly_when_every_legal_count_stays_legal(
    old: Cardinality, new: Cardinality
) -> None:
    stays = all(holds(n, new.min, new.max) for n in range(20) if holds(n, old.min, old.max))
    assert is_loosened(old, new) == stays


@given(
    st.lists(st.tuples(*[st.integers(0, 1) | st.none()] * 3), max_size=5),
    st.frozensets(st.integers(0, 2), min_size=1),
    st.frozensets(st.integers(0, 2), min_size=1),
)
def test_an_implied_unique_is_never_broken(
    rows: list[tuple[int | None, ...]], old: frozenset[int], new: frozenset[int]
) -> None:
    def is_unique(members: frozenset[int]) -> bool:
        tuples = [tuple(row[m] for m in sorted(members)) for row in rows]
        whole = [found for found in tuples if None not in found]
        return len(set(whole)) == len(whole)

    added = ConstraintIdentity("unique", frozenset(new))
    if is_implied(added, [ConstraintIdentity("unique", frozenset(old))]) and is_unique(old):
        assert is_unique(new)


def test_other_constraints_imply_only_themselves() -> None:
    known = ConstraintIdentity("check", frozenset({1}), pattern="a")
    assert is_implied(known, [known])
    assert not is_implied(ConstraintIdentity("check", frozenset({1}), pattern="b"), [known])
    unique = ConstraintIdentity("unique", frozenset({1, 2}))
    assert is_implied(unique, [ConstraintIdentity("key", frozenset({2}))])
    assert not is_implied(unique, [ConstraintIdentity("index", frozenset({1, 2}))])
    assert not is_implied(unique, [ConstraintIdentity("unique", frozenset({1, 2, 3}))])


def test_the_widenings_are_exactly_the_documented_ones() -> None:
    plain = [PropType(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR]
    found = {f"{a} {b}" for a in plain for b in plain if is_widening(a, b)}
    assert found == {"I32 I64", "U32 U64", "U32 I64", "F32 F64", "Date DateTime"}
    respelled = {f"{a} {b}" for a in plain for b in plain if changes_spelling(a, b)}
    assert respelled == {"F32 F64", "Date DateTime"}
