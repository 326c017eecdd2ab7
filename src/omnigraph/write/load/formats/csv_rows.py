r"""CSV and TSV as batches of texts, with the line that each row begins in.

1. A file is read in blocks that end with a row: memory is bounded by a block, and a row that is
   longer than `ROW_BYTES_MAX` is an error. Arrow's parser reads each block.
2. A quote opens a cell at its first character only. Inside of one, line ends are part of the cell.
3. An empty cell is null, `""` is the empty text. Blank lines are no rows.
4. A row with another number of cells than the header is refused by itself.
5. A quoted cell that never ends, and lines that end with a carriage return alone, are errors of the
   file: the rows behind them would be lost, or be part of a cell.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from omnigraph.dataclass import dataclass
from omnigraph.names import nearest_name
from omnigraph.write.load.formats.columnar import no_rows
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.stage.columns import Integers

BLOCK_BYTES: Final = 4 << 20
ROW_BYTES_MAX: Final = 1 << 28
_TRUE: Final = ("true", "1", "yes")
_BOM: Final = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = b"\n\r"

Bytes: TypeAlias = "npt.NDArray[np.uint8]"

BadRow: TypeAlias = Callable[[int, str, str], None]
"""Takes the line of a row that cannot be read, its text, and what is wrong with it."""


class TextRows(NamedTuple):
    """Rows as columns of texts, and the lines that they begin in."""

    batch: pa.RecordBatch
    lines: Integers


class CsvOptionError(ValueError):
    """An option of CSV is unknown or has no meaning."""


@dataclass(frozen=True)
class CsvOptions:
    """How a file of texts is written."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    """The character that takes the meaning of the next one; nothing: a quote is doubled."""
    header: bool = True
    columns: tuple[str, ...] = ()
    """The names of the columns, in place of those of the header."""
    null: tuple[str, ...] = ("",)
    """Unquoted cells that are null."""
    encoding: str = "utf-8"
    skip: int = 0
    """So many lines come before the header."""


OPTION_ALIASES: Final = {"sep": "delimiter", "nullValue": "null", "charset": "encoding"}
"""What Spark calls some options."""
OPTION_NAMES: Final = tuple(each.name for each in fields(CsvOptions))


def csv_options(given: Mapping[str, object]) -> CsvOptions:
    """Read options as callers write them, which Spark may have taught them.

    A delimiter that is not given is empty: the format of each file has one of its own.

    >>> csv_options({"sep": ";", "header": "false", "columns": "a,b"}).columns
    ('a', 'b')
    """
    values: dict[str, object] = {"delimiter": ""}
    for spelled, value in given.items():
        name = OPTION_ALIASES.get(spelled, spelled)
        if name not in OPTION_NAMES:
            near = nearest_name(spelled, OPTION_NAMES)
            hint = f"did you mean '{near}'?" if near else f"expected {', '.join(OPTION_NAMES)}"
            raise CsvOptionError(f"unknown option '{spelled}': {hint}")
        values[name] = _option(name, value)
    return CsvOptions(**values)  # type: ignore[arg-type]  # `_option` checks each


def _option(name: str, value: object) -> object:
    if name == "header":
        return str(value).lower() in _TRUE
    if name in ("columns", "null"):
        listed = value.split(",") if isinstance(value, str) else value
        if not isinstance(listed, list | tuple):
            raise CsvOptionError(f"'{name}' is {value!r}, expected a list of texts")
        return tuple(map(str, listed))
    if name == "skip":
        return int(str(value))
    text = str(value).encode().decode("unicode_escape") if value in ("\\t", "\\x01") else str(value)
    if name in ("delimiter", "quote", "escape") and len(text.encode()) > 1:
        raise CsvOptionError(f"'{name}' is {text!r}, expected one character")
    if name == "delimiter" and not text:
        raise CsvOptionError("'delimiter' is '', expected one character")
    return _codec(text) if name == "encoding" else text


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise CsvOptionError(f"'encoding' is {name!r}, which is not known") from None


def read_csv(
    path: str, source: BinaryIO, options: CsvOptions, bad_row: BadRow
) -> Iterator[TextRows]:
    """Read a file; the first batch is empty and has the columns."""
    blocks = _Blocks(path, _utf8(source, options), options)
    names = _columns(blocks, options)
    schema = pa.schema([pa.field(name, pa.utf8()) for name in names])
    yield TextRows(no_rows(schema), np.zeros(0, np.int64))
    for text, lines in blocks.read():
        if len(lines):
            yield _parsed(path, TextBlock(text, lines, names), options, bad_row)


def _utf8(source: BinaryIO, options: CsvOptions) -> BinaryIO:
    if codecs.lookup(options.encoding).name in ("utf-8", "ascii"):
        return source
    return codecs.EncodedFile(source, "utf-8", options.encoding)


def _columns(blocks: _Blocks, options: CsvOptions) -> tuple[str, ...]:
    for _ in range(options.skip):
        blocks.line()
    if not options.header and options.columns:
        return options.columns
    if not options.header:
        raise InputUnreadableError(blocks.path, "has no header: name its columns (`columns`)")
    line = blocks.row()
    if not line.strip():
        raise InputUnreadableError(blocks.path, "is empty, expected a header with names of columns")
    if options.columns:
        return options.columns
    if blocks.is_open(line):
        raise _unclosed(blocks.path, 1 + options.skip)
    text = line.removeprefix(_BOM).decode("utf-8", "replace")
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        escapechar=options.escape or None,
    )
    try:
        names, *others = reader
    except csv.Error as error:
        raise InputUnreadableError(blocks.path, f"has no header of a CSV file: {error}") from error
    if others:
        raise _lone_return(blocks.path, 1 + options.skip)
    return tuple(name.strip() for name in names)


def _unclosed(path: str, line: int) -> InputUnreadableError:
    problem = f"has a quoted cell that never ends, in the row that begins in line {line}"
    error = InputUnreadableError(path, problem)
    error.hint = "close the quote; where quotes have no meaning, give nothing as the option `quote`"
    return error


def _lone_return(path: str, line: int) -> InputUnreadableError:
    problem = f"has a carriage return without a line feed in line {line}"
    error = InputUnreadableError(path, problem)
    error.hint = (
        "end lines with a line feed: `tr '\\r' '\\n'` converts them; quote cells that have one"
    )
    return error


class _Blocks:
    """Cuts a text at ends of rows."""

    def __init__(self, path: str, source: BinaryIO, options: CsvOptions) -> None:
        self.path = path
        self._source = source
        self._rest = b""
        self._line = 1
        self._quotes = _Quotes(options)
        self._is_over = False

    def line(self) -> bytes:
        """Take one line."""
        while b"\n" not in self._rest and self._more():
            pass
        line, end, self._rest = self._rest.partition(b"\n")
        self._line += 1
        return line + end

    def row(self) -> bytes:
        """Take one row: a line, and those that belong to its quoted cells."""
        text = self.line()
        while not text.strip() and (self._rest or not self._is_over):
            text = self.line()
        while self._quotes.is_open(text) and (self._rest or self._more()):
            text += self.line()
        return text

    def is_open(self, row: bytes) -> bool:
        """Whether a quoted cell of a row does not end."""
        return self._quotes.is_open(row)

    def read(self) -> Iterator[tuple[bytes, Integers]]:
        """Yield the other rows: some whole ones, and the line of each that is not blank."""
        while self._rest or self._more():
            newlines, ends = self._ends(self._rest)
            while not len(ends) and self._more():
                if len(self._rest) > ROW_BYTES_MAX:
                    problem = f"has a row of more than {ROW_BYTES_MAX} bytes in line {self._line}"
                    raise InputUnreadableError(self.path, problem)
                newlines, ends = self._ends(self._rest)
            cut = len(self._rest) if self._is_over or not len(ends) else int(ends[-1]) + 1
            text, self._rest = self._rest[:cut], self._rest[cut:]
            last = int(ends[-1]) + 1 if len(ends) else 0
            if cut > last and self._quotes.is_open(text[last:]):
                raise _unclosed(self.path, self._line + text.count(b"\n", 0, last))
            self._require_line_feeds(text)
            yield text, self._line + _row_lines(text, newlines, ends)
            self._line += text.count(b"\n")

    def _require_line_feeds(self, text: bytes) -> None:
        """Raise for a carriage return that Arrow would take for the end of a row."""
        if text.count(b"\r") == text.count(b"\r\n"):
            return
        data = np.frombuffer(text, np.uint8)
        returns = np.flatnonzero(data[:-1] == _RETURN)
        alone = self._quotes.row_ends(text, data, returns[data[returns + 1] != _NEWLINE])
        if len(alone):
            raise _lone_return(self.path, self._line + text.count(b"\n", 0, int(alone[0])))

    def _more(self) -> bool:
        if self._is_over:
            return False
        text = self._source.read(max(BLOCK_BYTES, len(self._rest)))
        self._is_over = not text
        self._rest += text
        return bool(text)

    def _ends(self, text: bytes) -> tuple[Integers, Integers]:
        """Return all newlines of a text, and those that are no part of a quoted cell."""
        data = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(data == _NEWLINE)
        return newlines, self._quotes.row_ends(text, data, newlines)


def _row_lines(text: bytes, newlines: Integers, ends: Integers) -> Integers:
    """Return how many lines come before each row that is not blank."""
    ends = ends[: np.searchsorted(ends, len(text))]
    if not text.endswith(b"\n") or not len(ends):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts
    data = np.frombuffer(text + b"\n", np.uint8)
    is_blank = (lengths == 0) | ((lengths == 1) & (data[starts] == _RETURN))
    if len(ends) == len(newlines) and not is_blank.any():
        return np.arange(len(ends))
    lines: Integers = np.searchsorted(newlines, starts[~is_blank])
    return lines


class _Quotes:
    """Knows which newlines are inside of quoted cells."""

    def __init__(self, options: CsvOptions) -> None:
        self._quote = options.quote.encode()
        self._escape = b"" if options.escape == options.quote else options.escape.encode()
        marks = (options.delimiter, options.quote, "\n", "\r")
        self._beside = np.isin(np.arange(256), [ord(mark) for mark in marks if mark])
        """Bytes that come before a quote that opens a cell, and after one that closes it."""
        self._cell = _quoted_cell(self._quote, options.delimiter.encode(), self._escape)

    def is_open(self, text: bytes) -> bool:
        """Whether a quoted cell of a text does not end."""
        if not self._quote:
            return False
        last = deque(self._cell.finditer(text), maxlen=1)
        return bool(last) and last[0]["end"] is None

    def row_ends(self, text: bytes, data: Bytes, newlines: Integers) -> Integers:
        """Return the newlines that are no part of a quoted cell.

        Where every second quote opens a cell and the others close one, or are doubled, a newline
        after an odd number of quotes is inside of a cell. Other texts are read cell by cell.
        """
        if not self._quote or self._quote not in text:
            return newlines
        quotes = np.flatnonzero(data == self._quote[0])
        if not self._alternate(text, data, quotes):
            return self._by_cells(text, newlines)
        ends: Integers = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        return ends

    def _alternate(self, text: bytes, data: Bytes, quotes: Integers) -> bool:
        if self._escape and self._escape in text:
            return False
        opening, closing = quotes[::2], quotes[1::2]
        opens = self._beside[data[opening - 1]] | (opening == 0)
        after = np.minimum(closing + 1, len(data) - 1)
        closes = self._beside[data[after]] | (closing == len(data) - 1)
        return bool(opens.all() and closes.all())

    def _by_cells(self, text: bytes, newlines: Integers) -> Integers:
        spans = [found.span() for found in self._cell.finditer(text)]
        if not spans:
            return newlines
        starts, stops = np.array(spans).T
        before = np.searchsorted(starts, newlines, side="right") - 1
        ends: Integers = newlines[(before < 0) | (newlines >= stops[before])]
        return ends


def _quoted_cell(quote: bytes, delimiter: bytes, escape: bytes) -> re.Pattern[bytes]:
    """Return the expression of a quoted cell; `end` is its last quote."""
    quote, delimiter, escape = (re.escape(text) for text in (quote or b'"', delimiter, escape))
    inside = b"[^" + quote + escape + b"]*"
    special = quote + quote + (b"|" + escape + b"." if escape else b"")
    body = inside + b"(?:(?:" + special + b")" + inside + b")*"
    before = rb"(?:(?<=[\r\n" + delimiter + rb"])|\A)"
    return re.compile(before + quote + body + b"(?:(?P<end>" + quote + rb")|\Z)", re.DOTALL)


class TextBlock(NamedTuple):
    """Whole rows of a file, the lines that they begin in, and the names of their cells."""

    text: bytes
    lines: Integers
    names: Sequence[str]


def _parsed(path: str, block: TextBlock, options: CsvOptions, bad_row: BadRow) -> TextRows:
    text, lines, names = block
    refused: list[int] = []

    def skip(row: arrow_csv.InvalidRow) -> str:
        number = int(row.number) - 1
        refused.append(number)
        problem = f"expected {row.expected_columns} cells, found {row.actual_columns}"
        bad_row(int(lines[number]), row.text, problem)
        return "skip"

    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=list(names)
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
                newlines_in_values=True,
                invalid_row_handler=skip,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.utf8()),
                null_values=list(options.null),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        first = int(lines[0])
        _require_unicode(path, text, first)
        problem = f"cannot be read as CSV from line {first} on: {error}"
        raise InputUnreadableError(path, problem) from error
    kept = np.delete(lines, refused)
    batch = table.combine_chunks().to_batches()
    return TextRows(batch[0] if batch else no_rows(table.schema), kept[: table.num_rows])


def _require_unicode(path: str, text: bytes, first_line: int) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line = first_line + text.count(b"\n", 0, error.start)
        byte = text[error.start]
        problem = f"is no UTF-8 text: byte 0x{byte:02x} in line {line}; name its `encoding`"
        raise InputUnreadableError(path, problem) from None
