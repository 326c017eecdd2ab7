r"""What surrounds a run: its three streams, the encoding of a locale, the width of a terminal.

1. No character ends a run: what the encoding of a stream lacks is written as `\uXXXX`, which
   people can read and which means the same character inside JSON.
2. No stored value and no argument can control the terminal, or add a line of its own.
3. A stream that the caller closed is replaced by an empty one. Otherwise the next file that is
   opened gets its number, and what a library prints would be written into data.
"""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from io import TextIOWrapper
from typing import Final

import click

from omnigraph.texts import escaped

_ESCAPES: Final = "omnigraph-escapes"


def prepare_streams() -> None:
    """Make the streams of this process safe to write any text to."""
    sys.stdin = sys.stdin or _empty("r")
    sys.stdout = sys.stdout or _empty("w")
    sys.stderr = sys.stderr or _empty("w")
    codecs.register_error(_ESCAPES, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines for people; what would steer a terminal is escaped.

    What programs read is printed with `click.echo`, as it is: CSV, JSON, exports.
    """
    click.echo("\t".join(map(escaped, text.split("\t"))), err=err)


def terminal_width() -> int | None:
    """Return how many characters fit on a line of stdout, or None if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _empty(mode: str) -> TextIOWrapper:
    number = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
    return TextIOWrapper(os.fdopen(number, f"{mode}b"), encoding="utf-8")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Spell the characters that cannot be encoded as JSON does.

    >>> _escaped(UnicodeEncodeError("ascii", "a→😀", 1, 3, "no"))
    ('\\u2192\\ud83d\\ude00', 3)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(f"\\u{pair.hex()}" for pair in pairs), error.end
