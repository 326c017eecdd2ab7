"""What a load is about to read, described without reading it.

1. A file is known by its size and the moment it was changed last; nothing of it is read for that.
   Records in memory of up to 1 MiB are known by the hash of their bytes. So a description costs a
   few microseconds per file.
2. What cannot be described stays undescribed: a description never fails a load.
3. An address has no user, no query string and no options of its storage.
"""

from __future__ import annotations

import glob
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Final

from omnigraph.dataclass import dataclass
from omnigraph.lineage.record import InputRead
from omnigraph.names import TableKey
from omnigraph.texts import escaped, redacted

MEMORY: Final = "memory:"
"""How the address of rows begins that come from no file; the name of their type follows."""
RECORDS: Final = "records"
_HASHED_BYTES_MAX: Final = 1 << 20
_FILES_MAX: Final = 10_000
"""More files than this are counted and not looked at."""
_COLUMNS_MAX: Final = 500
_QUERY: Final = re.compile(r"\?[^#\s]*")
_JDBC: Final = "jdbc:"
_JDBC_SETTINGS: Final = re.compile(r"[?;(]|:(?=\w+=)")
"""Where the settings of an address of JDBC begin; drivers spell them in several ways."""
_JDBC_USER: Final = re.compile(r"(?i)\A(jdbc:oracle:\w+:).*@")
_JDBC_DATABASE: Final = re.compile(r"(?i);(database(?:name)?=[\w$.-]+)")
_PLAIN_COLUMN: Final = re.compile(r"`?([A-Za-z_]\w*)`?\Z")
_SUFFIX_FORMATS: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".csv": "csv",
    ".orc": "orc",
}


@dataclass(frozen=True)
class Described:
    """What a load reads."""

    inputs: tuple[InputRead, ...] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: tuple[str | None, ...] = ()
    """The name of the type that each input is for; None for records of all types."""

    def with_rows(self, rows: Mapping[str, int]) -> tuple[InputRead, ...]:
        """Return the inputs with the numbers of rows, by table, where one input has them all."""
        total = sum(rows.values())
        by_name = {TableKey(key).type_name: count for key, count in rows.items()}
        return tuple(
            replace(one, rows=total if name is None else by_name.get(name, 0))
            if self.names.count(name) == 1
            else one
            for one, name in zip(self.inputs, self.names, strict=True)
        )


def describe(data: object) -> Described:
    """Describe records, or tables by type, in any form that a load takes."""
    try:
        return _described(data)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        # The reader says what is wrong with it.
        return Described()


def _described(data: object) -> Described:
    if not isinstance(data, Mapping):
        inputs = tuple(_records(data))
        return Described(inputs, names=(None,) * len(inputs))
    found: list[InputRead] = []
    names: list[str] = []
    columns: dict[str, Sequence[str]] = {}
    for key, table in data.items():
        name = str(key).rpartition(":")[2]
        for one in _table(name, table):
            found.append(one)
            names.append(name)
        columns |= _mapped_columns(name, table)
    return Described(tuple(found), columns, tuple(names))


def graph_read(root: str, table_key: str, commit_id: str, *, rows: int | None = None) -> InputRead:
    """Describe a table of a graph that was read as a commit has left it.

    >>> graph_read("s3://lake/g", "node:Person", "01K").uri
    's3://lake/g#node:Person@01K'
    """
    uri = f"{address(root)}#{table_key}@{commit_id}"
    return InputRead(None, uri, "omnigraph", version=commit_id, rows=rows)


def address(location: str) -> str:
    """Return where something is, without secrets; a local path is absolute.

    >>> address("https://u:p@host/x.parquet?sig=abc")
    'https://***@host/x.parquet?***'
    """
    is_local = "://" not in location and not location.lower().startswith(_JDBC)
    return without_secrets(f"file://{Path(location).absolute()}" if is_local else location)


def without_secrets(location: str) -> str:
    """Return an address without its user and its query string; a glob keeps its marks."""
    if location.lower().startswith(_JDBC):
        return _jdbc_address(location)
    is_remote = "://" in location and not location.startswith("file://")
    masked = redacted(location)
    return escaped(_QUERY.sub("?***", masked) if is_remote else masked)


def _jdbc_address(url: str) -> str:
    """Return an address of JDBC with the name of its database, and none of its other settings.

    >>> _jdbc_address("jdbc:sqlserver://h;user=sa;password={a b};databaseName=x")
    'jdbc:sqlserver://h;databaseName=x;***'
    """
    masked = _JDBC_USER.sub(r"\1***@", redacted(url))
    settings = _JDBC_SETTINGS.search(masked)
    if settings is None:
        return escaped(masked)
    start, mark = masked[: settings.start()], settings[0].strip("(")
    database = _JDBC_DATABASE.search(url)
    return escaped(f"{start}{f';{database[1]};' if database else mark}***")


# -- records and tables ---------------------------------------------------------------------------


def _records(data: object) -> Iterator[InputRead]:
    paths = _paths(data)
    if paths is not None:
        yield from (_files(path, "jsonl") for path in paths)
        return
    content = data.getbuffer() if isinstance(data, io.BytesIO) else data
    if isinstance(content, bytes | memoryview):
        size = len(content)
        digest = f"sha256:{sha256(content).hexdigest()}" if size <= _HASHED_BYTES_MAX else None
        yield InputRead(None, f"{MEMORY}{RECORDS}", "jsonl", bytes=size, digest=digest)
    else:
        yield InputRead(None, f"{MEMORY}{RECORDS}", "jsonl")


def _table(name: str, table: Any) -> Iterator[InputRead]:
    if isinstance(table, Mapping):
        yield from _specified(table)
        return
    paths = _paths(table)
    if paths is not None:
        yield from (_files(path, "parquet") for path in paths)
        return
    library = type(table).__module__.partition(".")[0]
    if library == "pyspark":
        # To look at an attribute of a frame asks its session.
        yield InputRead(None, escaped(f"{MEMORY}{name}"), "spark")
        return
    kind = "arrow" if library == "pyarrow" else library
    size = getattr(table, "nbytes", None)
    yield InputRead(
        None,
        escaped(f"{MEMORY}{name}"),
        kind,
        bytes=size if isinstance(size, int) else None,
        columns=_column_names(table),
    )


def _specified(spec: Mapping[str, Any]) -> Iterator[InputRead]:
    """Describe a source that is given by its description; its options are not looked at."""
    asked = spec.get("format")
    if "table" in spec:
        yield InputRead(str(spec["table"]), f"table:{spec['table']}", str(asked or "table"))
        return
    for path in _paths(spec.get("path")) or ():
        read = _files(path, str(asked or "parquet"))
        yield read if asked is None else replace(read, format=str(asked))


def _mapped_columns(name: str, table: object) -> dict[str, Sequence[str]]:
    """Return the properties that a description maps to plain columns."""
    if not isinstance(table, Mapping):
        return {}
    paths = _paths(table.get("path")) or [str(table.get("table", name))]
    source = _stem(paths[0])
    mapped = {**dict(table.get("map") or {}), **{k: table[k] for k in ("src", "dst") if k in table}}
    plain = {prop: _PLAIN_COLUMN.match(str(expression)) for prop, expression in mapped.items()}
    return {f"{name}.{prop}": [f"{source}.{m[1]}"] for prop, m in plain.items() if m is not None}


def _column_names(table: Any) -> tuple[str, ...]:
    """Return the columns of a table in memory; those of a lazy frame are not known yet."""
    if type(table).__module__.startswith("polars.lazyframe"):
        return ()
    names = getattr(getattr(table, "schema", None), "names", None)
    if not isinstance(names, list):
        columns = getattr(table, "columns", ())
        names = list(columns) if isinstance(columns, list) or hasattr(columns, "tolist") else []
    return tuple(escaped(str(one)) for one in names[:_COLUMNS_MAX])


# -- files ----------------------------------------------------------------------------------------


def _paths(data: object) -> list[str] | None:
    """Return the paths that an input consists of; None if it is none of paths."""
    given = data if isinstance(data, list | tuple) else [data]
    paths = [os.fspath(one) for one in given if isinstance(one, str | os.PathLike)]
    texts = [path for path in paths if isinstance(path, str)]
    return texts if len(texts) == len(given) else None


def _files(path: str, default_format: str) -> InputRead:
    form = _SUFFIX_FORMATS.get(Path(path).suffix.lower(), default_format)
    read = InputRead(_stem(path), address(path), form)
    if "://" in path:
        return read
    try:
        files = _listed(Path(path).absolute())
        states = [_state(file) for file in files[:_FILES_MAX]]
    except (OSError, ValueError):
        # The reader says what is wrong with it.
        return read
    if len(files) > _FILES_MAX:
        return replace(read, files=len(files))
    found = [state for state in states if state is not None]
    if not found:
        return read
    return replace(
        read,
        bytes=sum(size for _, size, _ in found),
        files=len(found) if len(found) > 1 else None,
        digest=files_digest(file_hash(*one) for one in found),
    )


def _stem(path: str) -> str:
    """Return what a column of a file is called by: `in/people.parquet` has `people.name`."""
    parts = [part for part in re.split(r"[\\/]", path) if part and not glob.has_magic(part)]
    return escaped(parts[-1].partition(".")[0]) if parts else "input"


def _listed(path: Path) -> list[str]:
    if path.is_dir():
        return sorted(one.path for one in os.scandir(path))
    if glob.has_magic(str(path)) and not path.exists():
        return sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    return [str(path)]


def _state(name: str) -> tuple[str, int, int] | None:
    """Return a digest of the state of a file; None for what is no file."""
    found = Path(name).stat()
    if not stat.S_ISREG(found.st_mode):
        return None
    return escaped(name), found.st_size, found.st_mtime_ns // 1_000


def file_hash(path: str, size: int, modified_us: int) -> str:
    """Return what stands for one state of a file; a file that changes has another one."""
    return blake2b(f"{path}\n{size}\n{modified_us}".encode(), digest_size=8).hexdigest()


def files_digest(hashes: Iterable[str]) -> str:
    """Return what stands for one state of some files."""
    return f"sha256:{sha256(' '.join(hashes).encode()).hexdigest()}"
