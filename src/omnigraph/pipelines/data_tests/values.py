"""Values of YAML as values of JSON; what could be misread is a finding."""

from __future__ import annotations

import re
from typing import Final

from omnigraph.pipelines.file.shape import Shape


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
    value = shape.value
    if isinstance(value, dict):
        return json_object(shape)
    if isinstance(value, list):
        return [json_value(item) for item in shape.items()]
    if isinstance(value, str):
        return value
    if value.kind == "null":
        return None
    if value.kind == "bool" and value.text in _BOOLEANS:
        return _BOOLEANS[value.text]
    if value.kind == "int" and _INTEGER.fullmatch(value.text):
        return int(value.text)
    if value.kind == "float" and _FLOAT.fullmatch(value.text):
        return float(value.text)
    if value.kind == "timestamp":
        return value.text
    shape.wrong(
        f"'{value.text}' may mean a number, a boolean or a text: write a decimal number,"
        " true or false, or put it in quotes"
    )
    return None


def json_object(shape: Shape) -> dict[str, object]:
    """Return a map as a JSON object; empty if it is none."""
    return {key: json_value(inner) for key, inner in (shape.members() or {}).items()}


def json_objects(shape: Shape) -> tuple[dict[str, object], ...]:
    """Return a list of maps as JSON objects."""
    return tuple(json_object(item) for item in shape.items())
