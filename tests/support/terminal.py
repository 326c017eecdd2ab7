"""Runs commands in this process and takes what they print."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from omnigraph.cli.app import run

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Runs commands in this process and takes what they print."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *args: str) -> Result:
        self._capture.readouterr()
        code = run(list(args))
        out, err = self._capture.readouterr()
        return Result(code, out, err)
