"""Reads which rows of a fragment are deleted, from its deletion file alone.

| file | holds |
|---|---|
| `.arrow` | one column of row offsets; up to some thousand deleted rows |
| `.bin` | a bitmap of row offsets in the Roaring format |

A file is written once and belongs to one version of one fragment.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Offsets = npt.NDArray[np.uint32]

_WITH_RUNS: Final = 12_347
_WITHOUT_RUNS: Final = 12_346
_OFFSETS_FROM: Final = 4
"""Of a bitmap with runs, the number of containers from which on it lists where they begin."""
_LISTED_MAX: Final = 4_096
"""A container of more values is a bitmap of 2^16 bits."""
_BITMAP_BYTES: Final = 8_192


def listed_offsets(data: bytes) -> Offsets:
    """Read an `.arrow` file."""
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    found: Offsets = table.column(0).to_numpy().astype(np.uint32)
    return np.sort(found)


def bitmap_offsets(data: bytes) -> Offsets:
    """Read a `.bin` file: https://github.com/RoaringBitmap/RoaringFormatSpec."""
    cookie = int.from_bytes(data[:4], "little")
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs_end = 4 + (count + 7) // 8
        is_run = np.unpackbits(np.frombuffer(data[4:runs_end], np.uint8), bitorder="little")
        at = runs_end
        has_places = count >= _OFFSETS_FROM
    elif cookie == _WITHOUT_RUNS:
        count = int.from_bytes(data[4:8], "little")
        is_run = np.zeros(count, np.uint8)
        at = 8
        has_places = True
    else:
        raise ValueError(f"unknown form of a bitmap: {cookie}")
    heads = np.frombuffer(data, "<u2", 2 * count, at).astype(np.uint32)
    at += 4 * count + (4 * count if has_places else 0)
    found: list[Offsets] = [np.empty(0, np.uint32)]
    for number in range(count):
        high, size = heads[2 * number] << np.uint32(16), int(heads[2 * number + 1]) + 1
        values, at = _container(data, at, size, is_run=bool(is_run[number]))
        found.append(values + high)
    return np.concatenate(found)


def _container(data: bytes, at: int, size: int, *, is_run: bool) -> tuple[Offsets, int]:
    """Read up to 2^16 values from a place; return them and the place behind them."""
    if is_run:
        count = int.from_bytes(data[at : at + 2], "little")
        runs = np.frombuffer(data, "<u2", 2 * count, at + 2).astype(np.uint32)
        lengths = runs[1::2] + 1
        starts = np.repeat(runs[::2], lengths)
        steps = np.arange(len(starts)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return (starts + steps).astype(np.uint32), at + 2 + 4 * count
    if size <= _LISTED_MAX:
        return np.frombuffer(data, "<u2", size, at).astype(np.uint32), at + 2 * size
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITMAP_BYTES, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint32), at + _BITMAP_BYTES
