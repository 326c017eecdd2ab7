"""Parsers from grammar files, and their tables as files next to them.

Working out the tables of a grammar takes ten times longer than reading them from a file, and is the
largest part of a first query. `tools/write_parsers.py` writes the file `<grammar>.tables`. It
names its grammar and parser library; when either differs, or the file is missing, the tables are
worked out again.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from importlib import resources
from typing import Any, Final

import lark
from lark import Lark, Token, Transformer

_SUFFIX: Final = ".tables"


def tables_file(grammar_file: str) -> str:
    """Return the name of the file that holds the tables of a grammar.

    >>> tables_file("query.lark")
    'query.lark.tables'
    """
    return grammar_file + _SUFFIX


def built_parser(package: str, file: str, builder: Transformer[Token, Any] | None = None) -> Lark:
    """Work out the tables of a grammar."""
    return Lark(
        _text(package, file),
        parser="lalr",
        lexer="contextual",
        transformer=builder,
        propagate_positions=True,
        maybe_placeholders=True,
    )


def stored_parser(package: str, file: str, builder: Transformer[Token, Any] | None) -> Lark | None:
    """Return a parser from stored tables; None when there are none of exactly this grammar."""
    stored = resources.files(package).joinpath(tables_file(file))
    if not stored.is_file():
        return None
    found = pickle.loads(stored.read_bytes())  # noqa: S301 - a file of this package, like its code
    if found["made_from"] != _origin(_text(package, file)):
        return None
    tables = found["tables"]
    # What the library's own stand-alone parsers are made with; it has no annotations.
    load: Callable[..., Lark] = Lark._load_from_dict
    return load(tables["data"], tables["memo"], transformer=builder)


def encoded_tables(package: str, file: str) -> bytes:
    """Return the content of the file that `stored_parser` reads."""
    saved = io.BytesIO()
    built_parser(package, file).save(saved)
    tables = pickle.loads(saved.getvalue())  # noqa: S301 - made one line above
    content = {"made_from": _origin(_text(package, file)), "tables": tables}
    return pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)


def is_current(package: str, file: str) -> bool:
    """Whether there are stored tables of exactly this grammar and parser library."""
    return stored_parser(package, file, None) is not None


def _origin(text: str) -> tuple[str, str]:
    return lark.__version__, hashlib.sha256(text.encode()).hexdigest()


def _text(package: str, file: str) -> str:
    return resources.files(package).joinpath(file).read_text(encoding="utf-8")
