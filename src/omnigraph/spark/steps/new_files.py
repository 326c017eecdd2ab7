"""The files of one micro-batch, and whether they have the columns of their stream.

A stream keeps the columns of its start. Spark reads a column that a newer file lacks as null, and
the columns of a CSV file by their places. Rows would be loaded without values, or with those of
another column. So the files are looked at first: parquet and ORC by their schema, CSV by its
header.

Spark writes into the checkpoint which files belong to a micro-batch, before it reads them:
`offsets/<batch>` has a line for each stream, and `sources/<stream>/<log offset>` the files. Only
checkpoints and files in local folders are looked at.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from omnigraph.spark.steps.failures import SparkStepError
from omnigraph.spark.steps.workspace import SourceRead

_HEADER_LINES: Final = 2
"""Lines of a file of offsets before those of the streams."""
_NOTHING_READ: Final = -1


def files_of_batch(checkpoint: str, stream: int, batch: int) -> tuple[str, ...] | None:
    """Return the files that a micro-batch reads of a stream; None where that is not known."""
    folder = local_path(checkpoint)
    if folder is None:
        return None
    try:
        last = _log_offset(folder, stream, batch)
        first = _log_offset(folder, stream, batch - 1) if batch else _NOTHING_READ
        numbers = range(first + 1, last + 1)
        return tuple(path for number in numbers for path in _logged(folder, stream, number))
    except (OSError, ValueError, LookupError, TypeError):
        # No stream of files, or another version of Spark.
        return None


def bytes_of(files: Sequence[str]) -> int | None:
    """Return how large files are together; None where that is not known."""
    try:
        paths = [local_path(file) for file in files]
        return (
            sum(path.stat().st_size for path in paths if path is not None) if all(paths) else None
        )
    except OSError:
        return None


def local_path(place: str) -> Path | None:
    """Return a place as a local path; None for another storage."""
    if "://" in place or place.startswith("file:"):
        parts = urlsplit(place)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None
    return Path(place)


def _log_offset(folder: Path, stream: int, batch: int) -> int:
    lines = (folder / "offsets" / str(batch)).read_text().splitlines()
    line = lines[_HEADER_LINES + stream]
    return _NOTHING_READ if line == "-" else int(json.loads(line)["logOffset"])


def _logged(folder: Path, stream: int, number: int) -> Iterator[str]:
    log = folder / "sources" / str(stream)
    compacted = log / f"{number}.compact"
    path = compacted if compacted.exists() else log / str(number)
    for line in path.read_text().splitlines()[1:]:
        entry = json.loads(line)
        if entry["batchId"] == number:
            yield entry["path"]


def require_columns(read: SourceRead, names: Sequence[str], files: Sequence[str]) -> None:
    """Raise when a file lacks a column of its stream."""
    for file in files:
        path = local_path(file)
        problem = None if path is None else _problem(read, path, names)
        if problem is not None:
            raise SparkStepError(f"source '{read.name}'", f"the file '{path}' {problem}")


def _problem(read: SourceRead, path: Path, names: Sequence[str]) -> str | None:
    # What cannot be read here is for Spark to say. It takes separators of several characters, and
    # knows encodings that Python does not.
    with suppress(OSError, ValueError, TypeError, LookupError, csv.Error):
        if read.format in ("parquet", "orc"):
            import pyarrow.dataset as ds  # noqa: PLC0415 - needed for these formats only

            found = {name.lower() for name in ds.dataset(path, format=read.format).schema.names}
            missing = [name for name in _inside(path, names) if name.lower() not in found]
            return _lacks(missing[0]) if missing else None
        if read.format == "csv" and _has_header(read):
            return _problem_of_header(_header(read, path), list(_inside(path, names)))
    return None


def _lacks(name: str) -> str:
    return f"has no column '{name}', which the stream has had from its start"


def _inside(path: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield the columns that are in the file, and not in the names of its folders."""
    folders = {part.partition("=")[0].lower() for part in path.parts if "=" in part}
    return (name for name in names if name.lower() not in folders)


def _has_header(read: SourceRead) -> bool:
    options = {name.lower(): value for name, value in read.options.items()}
    return options.get("header", "false").lower() == "true"


def _header(read: SourceRead, path: Path) -> list[str]:
    options = {name.lower(): value for name, value in read.options.items()}
    separator = options.get("sep", options.get("delimiter", ","))
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    if encoding.lower() in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    with path.open(newline="", encoding=encoding) as lines:
        return next(csv.reader(lines, delimiter=separator), [])


def _problem_of_header(header: Sequence[str], names: Sequence[str]) -> str | None:
    """Return what is wrong with a header: Spark takes columns by their places.

    >>> _problem_of_header(["name", "age", "new"], ["name", "age"])
    >>> _problem_of_header(["age", "name"], ["name", "age"])
    "has the column 'age' in the place of 'name'"
    """
    if not header:
        return None
    for place, name in enumerate(names):
        if place >= len(header):
            return _lacks(name)
        if header[place].strip().lower() != name.lower():
            return f"has the column '{header[place]}' in the place of '{name}'"
    return None
