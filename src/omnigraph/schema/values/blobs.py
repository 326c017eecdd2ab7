"""Blobs: bytes that the graph keeps, or the URI of an external object."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.values import codes
from omnigraph.schema.values.json_batch import JsonBatch, Kind
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog, Mask
from omnigraph.schema.values.scalars import Subject, text_column
from omnigraph.values import BLOB_STORAGE

BASE64_PREFIX: Final = "base64:"

_LAST_OF_ONE_BYTE: Final = frozenset("AQgw")
_LAST_OF_TWO_BYTES: Final = frozenset("AEIMQUYcgkosw048")


def convert_blobs(batch: JsonBatch, subject: Subject, log: ErrorLog) -> pa.Array:
    """Convert a blob property; strings are the only kind in both modes."""
    log.add(
        batch.others(Kind.STRING),
        codes.NOT_A_BLOB,
        f"property '{subject.name}' must be a URI string or base64: prefixed data",
    )
    texts, broken = text_column(batch.keep(Kind.STRING))
    if broken is not None:
        message = f"property '{subject.name}' is not valid Unicode text"
        log.add_mask(broken, codes.INVALID_TEXT, message)
    return blobs_of_texts(texts, subject.name, log)


def blobs_of_texts(texts: pa.Array, name: str, log: ErrorLog) -> pa.Array:
    """Read a utf8 column of URIs and `base64:` data."""
    is_inline = pc.starts_with(texts, BASE64_PREFIX).fill_null(False)
    inline_rows = np.flatnonzero(is_inline.to_numpy(zero_copy_only=False))
    data, broken = _decode(texts.take(pa.array(inline_rows)).to_pylist())
    log.add(
        inline_rows[broken], codes.INVALID_BASE64, f"property '{name}' has invalid base64 blob data"
    )
    positions = np.full(len(texts), -1, np.int64)
    positions[inline_rows] = np.arange(len(inline_rows))
    spread = pa.array(data, pa.large_binary()).take(pa.array(positions, mask=positions < 0))
    uris = pc.if_else(is_inline, pa.scalar(None, pa.utf8()), texts)
    return blob_column(spread, uris, valid_mask(texts) & ~log.bad)


def blob_column(data: pa.Array, uris: pa.Array, valid: Mask) -> pa.Array:
    """Build a blob column from bytes and URIs, of which one is null in every row."""
    mask = None if valid.all() else pa.array(~valid)
    return pa.StructArray.from_arrays([data, uris], fields=list(BLOB_STORAGE), mask=mask)


def _decode(texts: Sequence[str]) -> tuple[list[bytes | None], Mask]:
    decoded = [_decode_one(text[len(BASE64_PREFIX) :]) for text in texts]
    return decoded, np.fromiter((data is None for data in decoded), np.bool_, len(decoded))


def _decode_one(text: str) -> bytes | None:
    # The decoder ignores bits after the last byte; two spellings of the same bytes are refused.
    if text.endswith("=="):
        canonical = text[-3:-2] in _LAST_OF_ONE_BYTE
    elif text.endswith("="):
        canonical = text[-2:-1] in _LAST_OF_TWO_BYTES
    else:
        canonical = True
    if not canonical:
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
