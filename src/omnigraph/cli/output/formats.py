"""The output forms of a read: a read result as JSON in, lines of text out.

| form | shape |
|---|---|
| `json` | the result, pretty-printed |
| `jsonl` | a line of metadata, then one compact object per row |
| `csv` | header, rows; cells with `,` `"` CR LF are quoted, quotes doubled |
| `kv` | summary, then per row `row N` and `header: value` lines |
| `table` | summary, header, rule, rows; wide cells are cut or wrapped; on a terminal that is too |
| | narrow, the columns come in several tables below each other |

Cells: null is `null`, text stands as it is, everything else is compact JSON. In `kv` and `table`
line ends and other control characters are escaped: a value is one line and cannot control a
terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from omnigraph.cli.output.json_writer import json_text
from omnigraph.dataclass import dataclass
from omnigraph.texts import on_one_line

ReadFormat: TypeAlias = Literal["table", "kv", "csv", "jsonl", "json"]
FileFormat: TypeAlias = Literal["arrow", "parquet"]
CellLayout: TypeAlias = Literal["truncate", "wrap"]

READ_FORMATS: Final[tuple[ReadFormat, ...]] = ("table", "kv", "csv", "jsonl", "json")
CELL_LAYOUTS: Final[tuple[CellLayout, ...]] = ("truncate", "wrap")
FILE_FORMATS: Final[tuple[FileFormat, ...]] = ("arrow", "parquet")
"""Forms for programs, which go to a file."""
COLUMN_WIDTH_DEFAULT: Final = 80
COLUMN_WIDTH_MIN: Final = 8
_NO_ROWS: Final = "(no rows)"
_BETWEEN: Final = " | "


@dataclass(frozen=True)
class TableStyle:
    """How wide a column may be, and what happens to wider cells."""

    column_width_max: int = COLUMN_WIDTH_DEFAULT
    layout: CellLayout = "truncate"
    line_width_max: int | None = None
    """How many characters fit on a line; None where lines may have any length."""

    @property
    def width_max(self) -> int:
        """The largest width, never below what can still be read."""
        return max(self.column_width_max, COLUMN_WIDTH_MIN)


DEFAULT_STYLE: Final = TableStyle()


def read_lines(
    result: Mapping[str, Any], form: ReadFormat, style: TableStyle = DEFAULT_STYLE
) -> Iterator[str]:
    """Yield the lines of a read result in one form."""
    match form:
        case "json":
            yield json_text(result, indent=2)
        case "jsonl":
            yield from _json_lines(result)
        case "csv":
            yield from _csv_lines(result)
        case "kv":
            yield from _pair_lines(result)
        case "table":
            yield from _table_lines(result, style)


def summary(result: Mapping[str, Any]) -> str:
    """Return the line that describes what was read.

    >>> target = {"branch": "main", "snapshot": None}
    >>> summary({"row_count": 2, "target": target, "query_name": "all"})
    '2 rows from branch main via all'
    """
    target = result["target"]
    where = f"branch {target['branch']}" if target["branch"] else f"snapshot {target['snapshot']}"
    name = f" via {result['query_name']}" if result["query_name"] else ""
    return f"{result['row_count']} rows from {where}{name}"


def cell_text(value: object) -> str:
    """Return one value as people read it.

    >>> cell_text(None), cell_text("a"), cell_text([1, "b"]), cell_text(True)
    ('null', 'a', '[1,"b"]', 'true')
    """
    if value is None:
        return "null"
    return value if isinstance(value, str) else _compact(value)


def _compact(value: object) -> str:
    return json_text(value, is_compact=True)


def _columns(result: Mapping[str, Any]) -> list[str]:
    known = result.get("columns")
    if known is not None:
        # Rows are objects, so a header that repeats is one column.
        return list(dict.fromkeys(known))
    return sorted({name for row in _rows(result) for name in row})


def _rows(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row if isinstance(row, Mapping) else {"value": row} for row in result["rows"]]


def _json_lines(result: Mapping[str, Any]) -> Iterator[str]:
    kept = {name: result[name] for name in ("query_name", "target", "row_count")}
    yield _compact({"kind": "metadata", **kept})
    for row in result["rows"]:
        yield _compact(row)


def _csv_lines(result: Mapping[str, Any]) -> Iterator[str]:
    columns = _columns(result)
    yield ",".join(_quoted(column) for column in columns)
    for row in _rows(result):
        yield ",".join(_quoted(cell_text(row.get(column))) for column in columns)


def _quoted(text: str) -> str:
    if not any(mark in text for mark in ',"\r\n'):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _pair_lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield summary(result)
    columns = _columns(result)
    rows = _rows(result)
    if not rows:
        yield _NO_ROWS
    for number, row in enumerate(rows, start=1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for column in columns:
            yield f"{on_one_line(column)}: {on_one_line(cell_text(row.get(column)))}"


def _table_lines(result: Mapping[str, Any], style: TableStyle) -> Iterator[str]:
    yield summary(result)
    columns = _columns(result)
    if not columns:
        yield _NO_ROWS
        return
    rows = [[on_one_line(cell_text(row.get(c))) for c in columns] for row in _rows(result)]
    headers = [on_one_line(column) for column in columns]
    widths = [_width([header, *cells], style) for header, cells in _by_column(headers, rows)]
    parts = list(_fitting(widths, style.line_width_max))
    for part in parts:
        if len(parts) > 1:
            yield ""
            yield f"columns {part.start + 1} to {part.stop} of {len(columns)}"
        yield from _row_lines(headers[part], widths[part], style)
        yield "-+-".join("-" * width for width in widths[part])
        for row in rows:
            yield from _row_lines(row[part], widths[part], style)


def _fitting(widths: Sequence[int], line_width_max: int | None) -> Iterator[slice]:
    """Cut columns into runs whose lines fit; a column that is wider alone is a run of its own.

    >>> list(_fitting([4, 4, 4], 12))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    start, used = 0, 0
    for position, width in enumerate(widths):
        longer = width if position == start else used + len(_BETWEEN) + width
        if line_width_max is not None and position > start and longer > line_width_max:
            yield slice(start, position)
            start, longer = position, width
        used = longer
    yield slice(start, len(widths))


def _by_column(
    headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[tuple[str, list[str]]]:
    for position, header in enumerate(headers):
        yield header, [row[position] for row in rows]


def _width(texts: Sequence[str], style: TableStyle) -> int:
    return min(max(len(text) for text in texts), style.width_max)


def _row_lines(cells: Sequence[str], widths: Sequence[int], style: TableStyle) -> Iterator[str]:
    pieces = [_pieces(cell, width, style) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(len(parts) for parts in pieces)):
        shown = [parts[number] if number < len(parts) else "" for parts in pieces]
        padded = [text.ljust(width) for text, width in zip(shown, widths, strict=True)]
        yield _BETWEEN.join(padded).rstrip()


def _pieces(cell: str, width: int, style: TableStyle) -> list[str]:
    if len(cell) <= width:
        return [cell]
    if style.layout == "truncate":
        return [cell[: width - 1] + "…"]
    return [cell[start : start + width] for start in range(0, len(cell), width)]
