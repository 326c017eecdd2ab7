"""YAML of which nothing is guessed: keys that stand twice."""

from __future__ import annotations

import pytest

from omnigraph.strict_yaml import RepeatedKey, StrictYamlError, read_yaml

TEXT = """\
a: 1
b:
  - {c: 1}
  - c: 1
    d:
      - - e: 1
          e: 2
    c: 3
a: 4
a: 5
"""


def test_keys_that_stand_twice_are_collected_with_their_lines() -> None:
    repeats: list[RepeatedKey] = []
    document = read_yaml(TEXT, repeats=repeats)
    assert repeats == [
        RepeatedKey("b[].d[][].e", line=7, first_line=6),
        RepeatedKey("b[].c", line=8, first_line=4),
        RepeatedKey("a", line=9, first_line=1),
        RepeatedKey("a", line=10, first_line=1),
    ]
    assert document == read_yaml("{a: 1, b: [{c: 1}, {c: 1, d: [[{e: 1}]]}]}")


def test_keys_that_stand_twice_are_an_error_where_nobody_collects_them() -> None:
    with pytest.raises(StrictYamlError, match=r"b\[1\].d\[0\]\[0\]: key 'e' stands twice"):
        read_yaml(TEXT)


def test_what_was_collected_before_a_mistake_stays() -> None:
    repeats: list[RepeatedKey] = []
    with pytest.raises(StrictYamlError, match="the text is not YAML"):
        read_yaml("a: 1\na: 2\nb: [", repeats=repeats)
    assert repeats == [RepeatedKey("a", line=2, first_line=1)]


def test_the_same_key_in_two_maps_stands_once() -> None:
    repeats: list[RepeatedKey] = []
    read_yaml("a: {c: 1}\nb: {c: 1}\nd: [{c: 1}, {c: 1}]", repeats=repeats)
    assert repeats == []
