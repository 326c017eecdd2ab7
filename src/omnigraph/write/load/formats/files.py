"""Finds and opens the files of a load.

| a path may be | its files |
|---|---|
| a file | itself |
| a folder | those below it with a suffix of a wanted format; not those named `.…` or `_…` |
| a glob | what it matches; folders count as above, `**` stands for any number of folders |
| a URI (`s3://…`, `gs://…`) | the same three, in object storage |

A folder named `name=value` below the given path is a partition: its files have that column.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.store.outside_files import Location, locate

CODECS: Final = {".gz": "gzip", ".zst": "zstd"}
"""Compressions of whole files, by the suffix that they add."""
CODEC_MAGIC: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_MAGIC: Final = re.compile(r"[*?\[]")


_ROWS: Final = re.compile(r"\s*(\{|\[\s*\{)")
"""How rows begin that were given as a text, where a path is expected."""
_ROWS_HINT: Final = (
    "a text is the path of a file: give rows as bytes (`text.encode()`), or by `--data -`"
)
_SOURCE_SHOWN_MAX: Final = 80


class InputUnreadableError(InvalidInputError):
    """The input of a load is not there, or is nothing that can be read."""

    code = "OG-INPUT"
    hint = "give files, folders or globs that exist; `--data -` reads standard input"
    template = "{source} {problem}"
    source: str
    problem: str

    def _hint(self) -> str | None:
        return _ROWS_HINT if _ROWS.match(self.source) else super()._hint()


@dataclass(frozen=True)
class InputFile:
    """One file of the input; `partitions` are the columns that its folders name."""

    path: str
    size: int
    partitions: tuple[tuple[str, str | None], ...] = ()

    @property
    def name(self) -> str:
        """Its name, in lower case and without a suffix of compression."""
        name = self.path.rpartition("/")[2].lower()
        return name.removesuffix(self.suffix_codec)

    @property
    def suffix_codec(self) -> str:
        """The suffix that says how it is compressed, or nothing."""
        return next((suffix for suffix in CODECS if self.path.lower().endswith(suffix)), "")


# -- finding --------------------------------------------------------------------------------------


def find_files(
    paths: Sequence[str | os.PathLike[str]],
    suffixes: Sequence[str],
    options: Mapping[str, str] | None = None,
) -> list[InputFile]:
    """Return the files that paths name; in folders those that have one of the suffixes."""
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise InputUnreadableError(type(path).__name__, "is no path of a file, folder or glob")
    return [file for path in paths for file in _files_at(os.fspath(path), suffixes, options)]


def _files_at(
    path: str, suffixes: Sequence[str], options: Mapping[str, str] | None
) -> list[InputFile]:
    try:
        if "://" in path and not path.startswith("file://"):
            found = _in_storage(locate(path, options))
        else:
            found = _on_disk(Path(path.removeprefix("file://")))
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        shown = path if not _ROWS.match(path) else path[:_SOURCE_SHOWN_MAX]
        raise InputUnreadableError(shown, f"cannot be read: {problem}") from error
    if isinstance(found, InputFile):
        return [found]
    fixed, listed = found
    wanted = [file for file in listed if _has_suffix(file, suffixes)]
    if not wanted:
        names = " or ".join(f"*{suffix}" for suffix in suffixes)
        is_glob = "matches no file" if _MAGIC.search(path) else f"has no file named {names}"
        raise InputUnreadableError(path, is_glob)
    return sorted((_partitioned(file, fixed) for file in wanted), key=lambda file: file.path)


def _has_suffix(file: InputFile, suffixes: Sequence[str]) -> bool:
    return not suffixes or file.name.endswith(tuple(suffixes))


def _on_disk(path: Path) -> InputFile | tuple[str, list[InputFile]]:
    """Return one file, or the folder that is fixed and the files below it that were found."""
    text = str(path)
    if path.is_dir():
        return text, [_disk_file(file) for file in _walked(path)]
    if path.exists() or not glob.has_magic(text):
        return _disk_file(path)
    matched = [Path(name) for name in glob.glob(text, recursive=True)]  # noqa: PTH207 - Path.glob takes no absolute pattern
    files = [file for one in matched for file in (_walked(one) if one.is_dir() else [one])]
    return _fixed_part(text), [_disk_file(file) for file in dict.fromkeys(files)]


def _disk_file(path: Path) -> InputFile:
    return InputFile(str(path), path.stat().st_size)


def _walked(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if _is_visible(str(file.relative_to(folder))) and file.is_file():
            yield file


def _is_visible(path: str) -> bool:
    *folders, name = path.split("/")
    if name.startswith((".", "_")):
        return False
    # A partition may have a column whose name begins with an underscore.
    return not any(part.startswith((".", "_")) and "=" not in part for part in folders)


def _in_storage(at: Location) -> InputFile | tuple[str, list[InputFile]]:
    if not _MAGIC.search(at.path):
        info = at.system.get_file_info(at.path)
        if info.type is pyarrow.fs.FileType.File:
            return _stored_file(at, info)
        if info.type is pyarrow.fs.FileType.NotFound:
            raise InputUnreadableError(at.prefix + at.path, "is not there")
        return at.prefix + at.path, _listed(at, at.path)
    fixed = _fixed_part(at.path)
    pattern = re.compile(_pattern(at.path))
    listed = _listed(at, fixed)
    return at.prefix + fixed, [
        file for file in listed if pattern.match(file.path.removeprefix(at.prefix))
    ]


def _listed(at: Location, folder: str) -> list[InputFile]:
    selector = pyarrow.fs.FileSelector(folder, recursive=True)
    return [
        _stored_file(at, info)
        for info in at.system.get_file_info(selector)
        if info.type is pyarrow.fs.FileType.File
        and _is_visible(info.path.removeprefix(folder).strip("/"))
    ]


def _stored_file(at: Location, info: pyarrow.fs.FileInfo) -> InputFile:
    return InputFile(at.prefix + info.path, int(info.size or 0))


def _fixed_part(path: str) -> str:
    """Return the folder before the first part of a path that is a pattern."""
    parts = path.split("/")
    fixed = next(n for n, part in enumerate(parts) if _MAGIC.search(part))
    return "/".join(parts[:fixed])


def _pattern(path: str) -> str:
    """Return the expression of a glob; what matches a folder matches the files below it."""
    spelled = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*|\*|\?|\[[^\]]*\])", path)
    text = "".join(
        spelled.get(piece) or (piece if piece.startswith("[") else re.escape(piece))
        for piece in pieces
    )
    return f"{text}(?:/.*)?$"


def _partitioned(file: InputFile, fixed: str) -> InputFile:
    folders = file.path.removeprefix(fixed).split("/")[:-1]
    pairs = [part.partition("=") for part in folders if "=" in part]
    values = tuple((unquote(name), _value(text)) for name, _, text in pairs if name)
    return InputFile(file.path, file.size, values)


def _value(text: str) -> str | None:
    return None if text == _NO_VALUE else unquote(text)


# -- opening --------------------------------------------------------------------------------------


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise what goes wrong with a file as one error that names it."""
    try:
        yield
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputUnreadableError(path, f"cannot be read: {problem}") from error


def open_seekable(path: str, options: Mapping[str, str] | None = None) -> pa.NativeFile:
    """Open a file in which a reader jumps around."""
    if "://" not in path:
        return pa.OSFile(path)
    at = locate(path, options)
    return at.system.open_input_file(at.path)


@contextmanager
def open_stream(path: str, options: Mapping[str, str] | None = None) -> Iterator[BinaryIO]:
    """Open a file to be read from its beginning to its end, decompressed."""
    with reading(path), _raw(path, options) as raw:
        source: BinaryIO = BufferedReader(raw)
        codec = codec_of(head_of(source, 4))
        if codec is None:
            yield source
            return
        unpacked = pa.CompressedInputStream(pa.PythonFile(source, "r"), codec)
        with BufferedReader(cast("FileIO", unpacked)) as inner:
            yield inner


def codec_of(head: bytes) -> str | None:
    """Return the compression of a file by its first bytes."""
    return next((codec for magic, codec in CODEC_MAGIC.items() if head.startswith(magic)), None)


def _raw(path: str, options: Mapping[str, str] | None) -> FileIO:
    if "://" not in path:
        return FileIO(path)
    return cast("FileIO", open_seekable(path, options))


def head_of(source: BinaryIO, size: int) -> bytes:
    """Return the first bytes of a stream without taking them, as far as it can look ahead."""
    if isinstance(source, BufferedReader):
        return bytes(source.peek(size)[:size])
    if not source.seekable():
        return b""
    at = source.tell()
    head = source.read(size)
    source.seek(at)
    return head
