"""Reads values of a file by the shape that they must have, and collects what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from omnigraph.pipelines.diagnostics import Findings, did_you_mean
from omnigraph.strict_yaml import NonText, Value, kind_of, path_below, path_of_item

_DURATION: Final = re.compile(r"([0-9]+)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class Shape:
    """A value, its path, and where findings go."""

    value: Value
    path: str
    findings: Findings

    def wrong(self, message: str, code: str = "wrong_value") -> None:
        """Record that the value is not what it must be."""
        self.findings.error(code, self.path, message)

    # -- maps and lists ---------------------------------------------------------------------------

    def entries(
        self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> dict[str, Shape] | None:
        """Return the entries of a map that has these keys; None if it is no map."""
        members = self.members()
        if members is None:
            return None
        known = (*required, *optional)
        for key, shape in members.items():
            if key not in known:
                message = f"unknown key '{key}'{did_you_mean(key, known)}"
                self.findings.error("unknown_key", shape.path, message, at_key=True)
        missing = [key for key in required if key not in members]
        for key in missing:
            self.findings.error("missing_key", self.path, f"'{key}' is missing", at_key=True)
        return {key: shape for key, shape in members.items() if key in known}

    def members(self) -> dict[str, Shape] | None:
        """Return the entries of a map whose keys are free; None if it is no map."""
        if not isinstance(self.value, dict):
            self.wrong(f"expected a map, found {kind_of(self.value)}")
            return None
        return {
            key: Shape(inner, path_below(self.path, key), self.findings)
            for key, inner in self.value.items()
        }

    def items(self) -> Iterator[Shape]:
        """Yield the items of a list; nothing if it is no list."""
        if not isinstance(self.value, list):
            self.wrong(f"expected a list, found {kind_of(self.value)}")
            return
        for index, item in enumerate(self.value):
            yield Shape(item, path_of_item(self.path, index), self.findings)

    # -- scalars ----------------------------------------------------------------------------------

    def text(self) -> str:
        """Return a text; empty if it is none."""
        if isinstance(self.value, str):
            if not self.value.strip():
                self.wrong("expected a text, found an empty one")
            return self.value
        remedy = "; put it in quotes" if _has_text(self.value) else ""
        self.wrong(f"expected a text, found {kind_of(self.value)}{remedy}")
        return ""

    def scalar(self) -> str:
        """Return the text of any scalar: a number and a boolean are meant as they are written."""
        if isinstance(self.value, NonText) and _has_text(self.value):
            return self.value.text
        return self.text()

    def scalars(self) -> dict[str, str]:
        """Return a map of scalars as texts."""
        return {key: shape.scalar() for key, shape in (self.members() or {}).items()}

    def choice(self, known: tuple[str, ...]) -> str | None:
        """Return one of some words."""
        text = self.text()
        if text and text not in known:
            self.wrong(f"unknown value '{text}'{did_you_mean(text, known)}")
        return text if text in known else None

    def whole_number(self) -> int | None:
        """Return a number that is not negative."""
        text = _scalar_text(self.value)
        if not text.isdecimal():
            self.wrong(f"expected a whole number, found {kind_of(self.value)}")
            return None
        return int(text)

    def number(self) -> float | None:
        """Return a number."""
        try:
            return float(_scalar_text(self.value))
        except ValueError:
            self.wrong(f"expected a number, found {kind_of(self.value)}")
            return None

    def is_true(self) -> bool:
        """Return whether a flag is set; the only other value is `false`."""
        text = _scalar_text(self.value)
        if text not in ("true", "false"):
            self.wrong(f"expected true or false, found {kind_of(self.value)}")
        return text == "true"

    def duration_s(self) -> int:
        """Return the seconds of a duration such as `5m`; a bare number is its own."""
        found = _DURATION.fullmatch(_scalar_text(self.value).strip())
        if found is None:
            message = f"expected a duration such as 30s, 5m, 12h or 2d, found {kind_of(self.value)}"
            self.wrong(message)
            return 0
        return int(found[1]) * _SECONDS[found[2]]


def _has_text(value: Value) -> bool:
    return isinstance(value, NonText) and value.kind != "null"


def _scalar_text(value: Value) -> str:
    if isinstance(value, NonText):
        return value.text
    return value if isinstance(value, str) else ""
