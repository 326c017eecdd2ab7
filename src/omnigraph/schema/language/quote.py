"""String literals of `.pg` texts."""

from __future__ import annotations

from typing import Final

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def quote(text: str) -> str:
    r"""Write a string literal.

    >>> print(quote('a "b"'))
    "a \"b\""
    """
    return f'"{text.translate(_ESCAPES)}"'
