"""A source text as a caller gives it: the text itself, or the file that has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from omnigraph.errors import NotFoundError
from omnigraph.syntax.grammar import decode_source
from omnigraph.syntax.source import SourceText


class SourceFileError(NotFoundError):
    """A schema, a file of queries or one of decisions was named, and cannot be read."""

    code = "OG-SOURCE-FILE"
    hint = "name a file that can be read; its text must be UTF-8"
    template = "cannot read {path}: {problem}"
    path: str
    problem: str


GivenSource: TypeAlias = str | SourceText | os.PathLike[str]
"""A text, or a file: a path, or a text that is nothing but the name of a file of the language."""


def given_source(given: GivenSource, *, suffix: str, letter: str) -> str | SourceText:
    """Return the text; one that was read from a file has its name in messages.

    A text on one line without braces that ends with `suffix` is the name of a file: no text of the
    languages looks so. `letter` begins the codes of the language.
    """
    if isinstance(given, SourceText) or (isinstance(given, str) and not _is_name(given, suffix)):
        return given
    path = Path(given)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceFileError(str(path), error.strerror or str(error)) from error
    return decode_source(data, str(path), letter)


def _is_name(text: str, suffix: str) -> bool:
    return text.endswith(suffix) and not any(mark in text for mark in "{}\n")
