"""A document that is written value by value is the one that would have been written at once."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cli.output.json_writer import JsonWriter, json_text
from omnigraph.texts import has_control

TEXTS = st.text(max_size=6) | st.sampled_from(["\u2028", "a\x85b", "\n", '"', "→"])
LEAVES = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def write(out: JsonWriter, value: Any, key: str | None = None, *, depth: int) -> None:
    """Write the outer levels part by part, and what lies deeper as a whole."""
    if depth and isinstance(value, dict):
        with out.in_object(key):
            for name, inner in value.items():
                write(out, inner, name, depth=depth - 1)
    elif depth and isinstance(value, list):
        with out.in_list(key):
            for inner in value:
                write(out, inner, depth=depth - 1)
    else:
        out.value(value, key)


@given(value=st.lists(VALUES, max_size=3) | st.dictionaries(TEXTS, VALUES), depth=st.integers(1, 4))
def test_parts_make_the_whole(value: object, depth: int) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        write(JsonWriter(), value, depth=depth)
    assert printed.getvalue() == json_text(value, indent=2) + "\n"
    assert json.loads(printed.getvalue()) == value
    # Only what steers a terminal is spelled differently.
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    if not any(has_control(mark) for mark in plain if mark != "\n"):
        assert printed.getvalue() == plain + "\n"
