"""Pretty JSON whose lists may not fit into memory: written value by value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

_STEP: Final = "  "
_STEERING: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON may leave as they are, and that control a terminal."""


def json_text(value: object, *, indent: int | None = None, is_compact: bool = False) -> str:
    r"""Return a value as JSON: the same value, spelled without characters that control a terminal.

    >>> json_text(["é", "\x9b31m"])
    '["é", "\\u009b31m"]'
    """
    separators = (",", ":") if is_compact else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, separators=separators)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class JsonWriter:
    """Writes one document to stdout as its parts come.

    What it writes is what `json_text(…, indent=2)` would have returned. A failure in the middle
    leaves a document that is not complete, and so no JSON.
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        """How many values each open object or list has so far."""

    @contextmanager
    def in_object(self, key: str | None = None) -> Iterator[None]:
        """Open an object for the length of the block."""
        with self._nested("{", "}", key):
            yield

    @contextmanager
    def in_list(self, key: str | None = None) -> Iterator[None]:
        """Open a list for the length of the block."""
        with self._nested("[", "]", key):
            yield

    def value(self, value: object, key: str | None = None) -> None:
        """Write one value: with its key in an object, without one in a list."""
        text = json_text(value, indent=2)
        self._begin(key)
        # Only line feeds: other characters that Python takes for line ends are inside strings.
        click.echo(text.replace("\n", f"\n{self._margin}"), nl=False)

    @property
    def _margin(self) -> str:
        return _STEP * len(self._sizes)

    @contextmanager
    def _nested(self, opening: str, closing: str, key: str | None) -> Iterator[None]:
        self._begin(key)
        click.echo(opening, nl=False)
        self._sizes.append(0)
        yield
        is_empty = self._sizes.pop() == 0
        click.echo(closing if is_empty else f"\n{self._margin}{closing}", nl=not self._sizes)

    def _begin(self, key: str | None) -> None:
        if self._sizes:
            click.echo(f"{',' if self._sizes[-1] else ''}\n{self._margin}", nl=False)
            self._sizes[-1] += 1
        if key is not None:
            click.echo(f"{json_text(key)}: ", nl=False)
