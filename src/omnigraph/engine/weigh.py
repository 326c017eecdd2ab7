"""What a load weighs: the bytes of its rows in memory, and whether this process can take them.

| the input | this process takes it while its rows fit into |
|---|---|
| files | half of the memory that is left; 256 MiB if a session of Spark runs already |
| tables in memory | half of the memory that is left |
| any, with `OMNIGRAPH_SPARK_MIN_BYTES` | so many bytes |

Starting Spark costs 10 to 20 seconds and a gigabyte, and tables in memory would have to be copied
to it. This process reads files of any size in batches; what grows with them is the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from omnigraph.dataclass import dataclass
from omnigraph.write.load.formats.description import is_description, is_objects, is_path
from omnigraph.write.load.formats.files import InputFile, InputUnreadableError, find_files
from omnigraph.write.load.formats.kinds import RECORD_SUFFIXES, TABLES, by_suffix, suffixes_of

RUNNING_MIN_BYTES: Final = 256 << 20
"""With a running session, work of more bytes than these goes there."""
_PACKED: Final = 5
"""So many times as large as a compressed file are its rows."""
_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Weight:
    """The size of an input, as far as it is known without reading it."""

    nbytes: int
    is_in_memory: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether work is too much for this process, and why."""

    is_too_much: bool
    reason: str


def weigh(data: object) -> Weight:
    """Return what an input weighs; files that are not on this machine count as nothing."""
    if isinstance(data, Weight):
        return data
    if not isinstance(data, Mapping):
        return Weight(_files_bytes(data, RECORD_SUFFIXES))
    tables = data.values()
    nbytes = sum(_table_bytes(table) for table in tables)
    return Weight(nbytes, is_in_memory=not any(map(is_description, tables)))


def decide(
    weight: Weight,
    *,
    least: int | None,
    memory: Callable[[], int],
    is_running: Callable[[], bool],
) -> Verdict:
    """Decide whether this process should take some work; `least` is the caller's own limit."""
    size = shown_bytes(weight.nbytes)
    if least is not None:
        is_too_much = weight.nbytes > least
        more = "more than" if is_too_much else "at most"
        return Verdict(is_too_much, f"the input has {more} {least} bytes")
    left = memory()
    fits = weight.nbytes <= left // 2
    if not weight.is_in_memory and fits and weight.nbytes > RUNNING_MIN_BYTES and is_running():
        return Verdict(True, f"the input has about {size}, and a session of Spark runs already")
    if fits:
        return Verdict(False, f"the input, about {size}, fits into memory")
    reason = f"the input, about {size}, does not fit into {shown_bytes(left)} of memory"
    return Verdict(True, reason)


def shown_bytes(count: int) -> str:
    """Return a size for people.

    >>> shown_bytes(72 << 20), shown_bytes(10)
    ('72 MiB', '10 bytes')
    """
    if count >= _GIB:
        return f"{count / _GIB:.1f} GiB"
    return f"{count // _MIB} MiB" if count >= _MIB else f"{count} bytes"


def _table_bytes(table: Any) -> int:
    size = getattr(table, "nbytes", None)
    if isinstance(size, int):
        return size
    if is_objects(table):
        return 0
    if isinstance(table, Mapping):
        table = table.get("path")
    if is_path(table) or isinstance(table, list | tuple):
        return _files_bytes(table, suffixes_of(TABLES))
    return _frame_bytes(table)


def _frame_bytes(table: Any) -> int:
    """Ask frames of pandas and polars; other streams are read in batches."""
    home = type(table).__module__.partition(".")[0]
    if home == "pandas" and hasattr(table, "columns"):
        return int(table.memory_usage(index=False).sum())
    estimate = getattr(table, "estimated_size", None)
    return int(estimate()) if home == "polars" and callable(estimate) else 0


def _files_bytes(data: object, suffixes: Sequence[str]) -> int:
    if is_path(data):
        data = [data]
    if not isinstance(data, Sequence) or isinstance(data, bytes):
        return 0
    return sum(
        _expanded(file)
        for path in data
        if isinstance(path, str | os.PathLike) and "://" not in os.fspath(path)
        for file in _found(path, suffixes)
    )


def _found(path: str | os.PathLike[str], suffixes: Sequence[str]) -> list[InputFile]:
    """Find files; the reader reports those that are not there."""
    try:
        return find_files([path], () if Path(path).is_dir() else suffixes)
    except (InputUnreadableError, OSError):
        return []


def _expanded(file: InputFile) -> int:
    form = by_suffix(file.name)
    is_packed = bool(file.suffix_codec) or (form is not None and form.name in ("parquet", "orc"))
    return file.size * _PACKED if is_packed else file.size
