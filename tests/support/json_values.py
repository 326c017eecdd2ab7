"""Strategies: JSON values near every edge of the property types, and the types themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from omnigraph.values import PropType, Scalar

BOUNDARIES = [
    sign * 2**power + offset
    for power in (0, 24, 31, 32, 53, 63)
    for sign in (-1, 1)
    for offset in (-1, 0, 1)
    if -(2**63) <= sign * 2**power + offset < 2**64
]
SINGLE_MAX = float(np.finfo(np.float32).max)
INTEGERS = st.sampled_from([*BOUNDARIES, 2**64 - 1]) | st.integers(-(2**63), 2**64 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [SINGLE_MAX, -SINGLE_MAX, 3.4028235677973366e38, 3.4028235677973362e38, 1e-46, -0.0, 7.0]
)


@st.composite
def moment_texts(draw: st.DrawFn) -> str:
    year = draw(
        st.integers(0, 9999).map("{:04}".format)
        | st.integers(-(10**9), 10**10).map("{:+05}".format)
        | st.just("12026")
    )
    month, day = draw(st.integers(0, 13)), draw(st.integers(0, 32))
    padding = draw(st.sampled_from(["{:02}", "{:02}", "{}"]))
    text = f"{year}-{padding.format(month)}-{padding.format(day)}"
    if draw(st.booleans()):
        return text
    parts = [draw(st.integers(0, 24)), draw(st.integers(0, 60)), draw(st.integers(0, 61))]
    time = draw(st.sampled_from([":", ":", ""])).join(f"{part:02}" for part in parts)
    fraction = draw(st.just("") | st.from_regex(r"\A\.[0-9]{0,10}\Z"))
    zone = draw(
        st.sampled_from(["", "Z", "z", "+00:00", " -0130", "+14", "-24:00", "+01:60", "+1", " Z"])
    )
    return text + draw(st.sampled_from("Tt  _")) + time + fraction + zone


TEXTS = (
    st.text(max_size=6)
    | moment_texts()
    | st.sampled_from(["", "base64:", "base64:QUI=", "base64:QUJ=", "base64:QQ", "20240229"])
)
SCALARS = st.none() | st.booleans() | INTEGERS | DOUBLES | TEXTS
ITEMS = st.one_of(
    [st.lists(one, max_size=3) for one in (INTEGERS, DOUBLES, TEXTS, st.booleans(), SCALARS)]
)
ANY_JSON = SCALARS | ITEMS | st.dictionaries(st.text(max_size=2), INTEGERS, max_size=1)

PLAIN = [scalar for scalar in Scalar if scalar is not Scalar.VECTOR]
PROP_TYPES = st.one_of(
    st.builds(PropType, st.sampled_from(PLAIN), st.booleans()),
    st.builds(
        PropType,
        st.sampled_from([scalar for scalar in PLAIN if scalar is not Scalar.BLOB]),
        st.booleans(),
        is_list=st.just(True),
    ),
    st.builds(PropType, st.just(Scalar.VECTOR), st.booleans(), dimension=st.integers(1, 3)),
)


@st.composite
def batches(draw: st.DrawFn) -> list[object]:
    """Mostly batches of one kind, which take the fast roads."""
    kind = draw(
        st.sampled_from(
            [INTEGERS, DOUBLES, INTEGERS | DOUBLES, TEXTS, st.booleans(), ITEMS, ANY_JSON]
        )
    )
    return draw(st.lists(kind | st.none() if draw(st.booleans()) else kind, max_size=12))
