"""The formats of files, and how the format of a file is found.

1. What the caller names counts. Else the suffix says it, and where it says nothing, the content.
2. Content that plainly is of another format than was stated is one error, which names both.
3. A `.json` file is lines or one array: its first character says which.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.names import one_of
from omnigraph.write.load.formats.files import (
    CODECS,
    InputFile,
    codec_of,
    head_of,
    open_seekable,
    open_stream,
    reading,
)

HEAD_BYTES: Final = 4096
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n"
_ARRAY: Final = re.compile(rb"\[\s*[\[{\]]")


@dataclass(frozen=True)
class Format:
    """A format by name: its suffixes, and the bytes that its files begin with."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...] = ()

    def __reduce__(self) -> tuple[Callable[[str], Format], tuple[str]]:
        """Stay the one format of its name in another process."""
        return format_named, (self.name,)

    @property
    def is_text(self) -> bool:
        """Whether a file is a text, which may be compressed as a whole and is read in one go."""
        return not self.magic

    @property
    def is_records(self) -> bool:
        """Whether rows are JSON objects, which may leave members out."""
        return self in RECORDS


JSONL: Final = Format("jsonl", "JSON lines", (".jsonl", ".ndjson", ".json"))
JSON: Final = Format("json", "a JSON array", (".json", ".jsonl", ".ndjson"))
CSV: Final = Format("csv", "CSV", (".csv",))
TSV: Final = Format("tsv", "TSV", (".tsv", ".tab"))
PARQUET: Final = Format("parquet", "Parquet", (".parquet", ".pq"), (b"PAR1", b"PARE"))
ARROW: Final = Format(
    "arrow",
    "Arrow IPC",
    (".arrow", ".feather", ".ipc", ".arrows"),
    (b"ARROW1", b"\xff\xff\xff\xff"),
)
ORC: Final = Format("orc", "ORC", (".orc",), (b"ORC",))

RECORDS: Final = (JSONL, JSON)
TABLES: Final = (PARQUET, CSV, TSV, ARROW, ORC)
FORMATS: Final = (*RECORDS, *TABLES)
FORMAT_NAMES: Final = tuple(form.name for form in FORMATS)
RECORD_SUFFIXES: Final = JSONL.suffixes
_UNKNOWN: Final = "binary data of no known format"
_EMPTY: Final = "an empty file"
_UTF_16: Final = "text in UTF-16"
_ZIP: Final = "a ZIP archive or an Excel workbook"


class InputFormatError(InvalidInputError):
    """A file is of another format than it was said to be, or than can be read there."""

    code = "OG-INPUT-FORMAT"
    template = "{source} is {found}, expected {expected}"
    source: str
    found: str
    expected: str

    def _hint(self) -> str:
        if self.expected == GRAPH_RECORDS:
            return "name the type of its rows: `--node TYPE` for nodes, `--edge TYPE` for edges"
        if self.found == GRAPH_RECORDS:
            return "load it without the name of a type: its records name theirs"
        if self.found == _UTF_16:
            return "name it with the option `encoding`, as utf-16"
        if self.found == _ZIP:
            return "unpack it, or save the workbook as CSV; `pandas.read_excel` gives tables"
        return "name the format of the file with `--format`, or leave that out"


GRAPH_RECORDS: Final = "graph records"


def format_named(name: str) -> Format:
    """Return a format by its name."""
    one_of(FORMAT_NAMES, name, "format")
    return next(form for form in FORMATS if form.name == name)


def suffixes_of(forms: Iterable[Format]) -> tuple[str, ...]:
    """Return the suffixes of files of some formats."""
    return tuple(dict.fromkeys(suffix for form in forms for suffix in form.suffixes))


def by_suffix(name: str) -> Format | None:
    """Return the format that the name of a file says; None where it says nothing."""
    return next((form for form in FORMATS if name.endswith(form.suffixes)), None)


def find_format(
    file: InputFile, asked: Format | None, options: Mapping[str, str] | None = None
) -> Format:
    """Return the format of a file of rows of one type."""
    stated = asked or by_suffix(file.name)
    if _is_pipe(file):
        # What is read from a pipe is gone: nobody may look first.
        if stated is None:
            raise InputFormatError(file.path, "a pipe", "a format that is named")
        return stated
    head = _head(file, options)
    if stated is None:
        found = by_content(head)
        if found is None:
            raise InputFormatError(file.path, _unknown(head), "a table")
        return _plain(file, found)
    return _plain(file, checked(file.path, stated, head, is_asked=asked is not None))


def _is_pipe(file: InputFile) -> bool:
    return "://" not in file.path and not Path(file.path).is_file()


def _plain(file: InputFile, stated: Format) -> Format:
    if file.suffix_codec and not stated.is_text:
        expected = f"{stated.title}, which is never compressed as a whole"
        raise InputFormatError(file.path, f"compressed ({CODECS[file.suffix_codec]})", expected)
    return stated


def _head(file: InputFile, options: Mapping[str, str] | None) -> bytes:
    stated = by_suffix(file.name)
    if stated is not None and not stated.is_text and not file.suffix_codec:
        with reading(file.path), open_seekable(file.path, options) as opened:
            return bytes(opened.read(HEAD_BYTES))
    with open_stream(file.path, options) as source:
        return head_of(source, HEAD_BYTES)


def by_content(head: bytes) -> Format | None:
    """Return the format of a file by its first bytes; None for no bytes and for unknown ones."""
    for form in FORMATS:
        if form.magic and head.startswith(form.magic):
            return form
    text = head.removeprefix(_BOM).lstrip(_BLANK)
    if not text or b"\0" in head or codec_of(head) is not None:
        return None
    if text.startswith(b"{"):
        return JSONL
    if _ARRAY.match(text):
        return JSON
    line = text.partition(b"\n")[0]
    return TSV if b"\t" in line and b"," not in line else CSV


def _unknown(head: bytes) -> str:
    """Return what a file is that has no format: by its first bytes, as far as they say it."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _UTF_16
    if head.startswith(b"PK\x03\x04"):
        return _ZIP
    return _UNKNOWN if head else _EMPTY


def checked(name: str, stated: Format, head: bytes, *, is_asked: bool = True) -> Format:
    """Return the format that was stated, or raise where the content plainly is of another one."""
    found = by_content(head)
    if stated.is_records and not is_asked and found in RECORDS:
        # The suffix does not tell lines from an array.
        return found if name.lower().endswith(".json") or found is JSONL else stated
    if found is stated or (not head and stated.is_text):
        return stated
    if found is None and not (stated.is_text and not head.strip(_BLANK)):
        raise InputFormatError(name, _unknown(head), stated.title)
    if found is not None and _contradicts(found, stated, head):
        raise InputFormatError(name, found.title, stated.title)
    return stated


def _contradicts(found: Format, stated: Format, head: bytes) -> bool:
    """Whether content is no text of the stated format with a mistake in it."""
    if not found.is_text or not stated.is_text:
        return True
    if stated.is_records:
        return not found.is_records and _are_no_objects(head)
    return found.is_records and _begins_with_object(head)


def _are_no_objects(head: bytes) -> bool:
    """Whether a text looks like a table: its first lines begin otherwise than objects do.

    One line without a delimiter is rather a record with a mistake in it.
    """
    lines = [line.strip(_BLANK) for line in head.removeprefix(_BOM).splitlines()]
    first = [line for line in lines if line][:2]
    is_table = len(first) > 1 or any(mark in first[0] for mark in (b",", b";", b"\t"))
    return is_table and not any(line.startswith((b"{", b"[", b"}", b"]")) for line in first)


def _begins_with_object(head: bytes) -> bool:
    text = head.removeprefix(_BOM).lstrip(_BLANK)
    if text.startswith(b"["):
        return True
    try:
        return isinstance(orjson.loads(text.partition(b"\n")[0]), dict)
    except orjson.JSONDecodeError:
        return False
