"""Values of YAML as values of JSON; what could be misread is a finding."""

from __future__ import annotations

import json
import re
from typing import Final

import orjson

from omnigraph.pipelines.file.shape import Shape
from omnigraph.strict_yaml import NonText

_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?")
_BOOLEANS: Final = {"true": True, "false": False}


def json_value(shape: Shape) -> object:
    """Return a value as JSON has it: days and moments are texts.

    >>> from omnigraph.pipelines.diagnostics import Findings
    >>> from omnigraph.strict_yaml import read_yaml
    >>> json_value(Shape(read_yaml("[1, 1.5, true, null, 2020-01-01, 'x']"), "", Findings()))
    [1, 1.5, True, None, '2020-01-01', 'x']
    """
    if isinstance(shape.value, dict):
        return json_object(shape)
    if isinstance(shape.value, list):
        return [json_value(item) for item in shape.items()]
    return shape.value if isinstance(shape.value, str) else _scalar(shape, shape.value)


def _scalar(shape: Shape, value: NonText) -> object:
    text = value.text
    if value.kind == "null":
        return None
    if value.kind == "timestamp":
        return text
    if value.kind == "bool" and text in _BOOLEANS:
        return _BOOLEANS[text]
    if value.kind == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if value.kind == "float" and _FLOAT.fullmatch(text):
        return float(text)
    shape.wrong(
        f"'{text}' may mean a number, a boolean or a text: write a decimal number,"
        " true or false, or put it in quotes"
    )
    return None


def json_object(shape: Shape) -> dict[str, object]:
    """Return a map as a JSON object; empty if it is none."""
    return {key: json_value(inner) for key, inner in (shape.members() or {}).items()}


def json_objects(shape: Shape) -> tuple[dict[str, object], ...]:
    """Return a list of maps as JSON objects."""
    return tuple(json_object(item) for item in shape.items())


def json_bytes(value: object, *, sorts_names: bool = False) -> bytes:
    """Return a value as one line of JSON; the names of its objects may be sorted.

    >>> json_bytes({"b": 2**70})
    b'{"b": 1180591620717411303424}'
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sorts_names else 0)
    except TypeError:
        # Integers of more than 64 bits: a test may be about their refusal.
        return json.dumps(value, sort_keys=sorts_names).encode()
