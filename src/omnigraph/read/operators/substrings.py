"""Substrings and prefixes, letter by letter, where either side may be a column."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Datum: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
_Texts: TypeAlias = npt.NDArray[np.str_]

_TEXT_DTYPE: Final = np.dtypes.StringDType()


def has_part(text: Datum, part: Datum) -> Datum:
    """Return for each row whether `part` occurs in `text`; null where one of them is.

    >>> has_part(pa.array(["brig", None]), pa.scalar("ri")).to_pylist()
    [True, None]
    """
    return _tested(text, part, by_constant=pc.match_substring, by_row=_found, one=_contains)


def has_prefix(text: Datum, prefix: Datum) -> Datum:
    """Return for each row whether `text` starts with `prefix`; null where one of them is."""
    return _tested(text, prefix, by_constant=pc.starts_with, by_row=_starts, one=str.startswith)


def _tested(
    text: Datum,
    part: Datum,
    *,
    by_constant: Callable[[Datum, str], Datum],
    by_row: Callable[[_Texts, _Texts], npt.NDArray[np.bool_]],
    one: Callable[[str, str], bool],
) -> Datum:
    if isinstance(part, pa.Scalar):
        return by_constant(text, part.as_py()) if part.is_valid else _unknown()
    if isinstance(text, pa.Scalar) and not text.is_valid:
        return _unknown()
    known = pc.and_(pc.is_valid(text), pc.is_valid(part))
    texts, parts = _filled(text), _filled(part)
    if pc.any(pc.match_substring(part, "\0")).as_py():
        # NumPy drops NUL characters at the end of the searched text.
        texts = np.broadcast_to(texts, parts.shape)
        pairs = zip(texts.tolist(), parts.tolist(), strict=True)
        holds = np.array([one(whole, wanted) for whole, wanted in pairs], np.bool_)
    else:
        holds = by_row(texts, parts)
    return pc.if_else(known, pa.array(holds), _unknown())


@cache
def _unknown() -> pa.Scalar:
    """Return null. Not a constant: the first scalar that pyarrow makes imports pandas."""
    return pa.scalar(None, pa.bool_())


def _filled(datum: Datum) -> _Texts:
    if isinstance(datum, pa.Scalar):
        return np.array([datum.as_py()], _TEXT_DTYPE)
    return np.array(pc.fill_null(datum, "").to_pylist(), _TEXT_DTYPE)


def _starts(texts: _Texts, prefixes: _Texts) -> npt.NDArray[np.bool_]:
    return np.strings.startswith(texts, prefixes)


def _found(texts: _Texts, parts: _Texts) -> npt.NDArray[np.bool_]:
    return np.strings.find(texts, parts) >= 0


def _contains(whole: str, wanted: str) -> bool:
    return wanted in whole
