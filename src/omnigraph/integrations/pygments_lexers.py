"""Colours for schemas (`.pg`) and queries (`.gq`) wherever Pygments highlights code.

Pygments finds both by the entry points of the package: `pygmentize kg.pg`, fences of MkDocs and
Sphinx, notebooks.
"""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
    _TokenType,
)

_Rules = list[tuple[object, _TokenType]]

_TYPES = (
    *("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64"),
    *("Date", "DateTime", "Blob", "Vector"),
)

_ANYWHERE: _Rules = [
    (r"\s+", Whitespace),
    (r"//[^\n]*", Comment.Single),
    (r"/\*[\s\S]*?\*/", Comment.Multiline),
    (r'"(?:[^"\\]|\\.)*"', String.Double),
    (r"@[A-Za-z_]\w*", Name.Decorator),
    (r"-?\d+\.\d+(?:[eE][+-]?\d+)?\b", Number.Float),
    (r"-?\d+\b", Number.Integer),
    (words(_TYPES, prefix=r"\b", suffix=r"\b"), Keyword.Type),
]

_REST: _Rules = [
    (r"[A-Za-z_]\w*", Name),
    (r"->|\.\.|[<>=!]=?|[-+*/%|]", Operator),
    (r"[{}()\[\],:.?;]", Punctuation),
]


class SchemaLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """Schemas of omnigraph."""

    name = "omnigraph schema"
    aliases: ClassVar = ["pg", "omnigraph-schema"]
    filenames: ClassVar = ["*.pg"]
    tokens: ClassVar = {
        "root": [
            *_ANYWHERE,
            (words(("node", "edge", "interface", "implements"), suffix=r"\b"), Keyword.Declaration),
            (r"enum\b", Keyword.Type),
            (r"(?:true|false|null)\b", Keyword.Constant),
            (r"[A-Z]\w*", Name.Class),
            *_REST,
        ]
    }


class QueryLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """Queries of omnigraph."""

    name = "omnigraph query"
    aliases: ClassVar = ["gq", "omnigraph-query"]
    filenames: ClassVar = ["*.gq"]
    tokens: ClassVar = {
        "root": [
            *_ANYWHERE,
            (r"\$[A-Za-z_]\w*|\$_", Name.Variable),
            (words(("query",), suffix=r"\b"), Keyword.Declaration),
            (
                words(
                    (
                        *("match", "return", "distinct", "order", "limit", "offset", "as"),
                        *("asc", "desc", "optional", "not", "and", "or", "in", "is", "contains"),
                        *("starts_with", "insert", "create", "upsert", "update", "delete"),
                        *("set", "where", "from", "to"),
                    ),
                    suffix=r"\b",
                ),
                Keyword,
            ),
            (r"(?:true|false|null)\b", Keyword.Constant),
            (r"[a-z_]\w*(?=\()", Name.Function),
            (r"[A-Z]\w*", Name.Class),
            *_REST,
        ]
    }
