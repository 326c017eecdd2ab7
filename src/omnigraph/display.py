"""How results look at a prompt and in a notebook: a title, and a table of the first rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.texts import on_one_line, shown

ROWS_SHOWN_MAX: Final = 20
CELL_WIDTH_MAX: Final = 60
_LIST_ITEMS_SHOWN_MAX: Final = 6


@dataclass(frozen=True)
class Display:
    """A title and the first rows of a table."""

    title: str
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    row_count: int | None = None
    """How many rows there are, where `rows` has only the first ones."""

    def text(self) -> str:
        """Return the table in columns of equal width.

        >>> print(Display("2 rows", ("name", "age"), (("Ann", 41), ("Bo", None))).text())
        2 rows
        name  age
        Ann   41
        Bo    null
        """
        cells = [list(self.headers), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        )
        table = list(lines) if self.headers else []
        return "\n".join([shown(self.title), *table, *self._rest()])

    def html(self) -> str:
        """Return the table as HTML; values cannot be markup."""
        title = f"<div><b>{escape(shown(self.title))}</b></div>"
        rest = "".join(f"<div>{escape(line)}</div>" for line in self._rest())
        if not self.headers:
            return f"<div>{title}{rest}</div>"
        head = "".join(f"<th>{escape(on_one_line(header))}</th>" for header in self.headers)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in self._cells()
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{title}{table}{rest}</div>"

    def _cells(self) -> list[list[str]]:
        return [[cell_text(value) for value in row] for row in self.rows[:ROWS_SHOWN_MAX]]

    def _rest(self) -> list[str]:
        count = len(self.rows) if self.row_count is None else self.row_count
        left = count - min(len(self.rows), ROWS_SHOWN_MAX)
        return [f"… {left} more"] if left else []


class Displayed(ABC):
    """An object that a prompt and a notebook show as a table. A dataclass needs `repr=False`."""

    @abstractmethod
    def _display(self) -> Display:
        """Return the table."""

    def __repr__(self) -> str:
        return self._display().text()

    def _repr_html_(self) -> str:
        return self._display().html()


def cell_text(value: object) -> str:
    r"""Return a value on one line, cut where it is long.

    >>> cell_text(None), cell_text("a\nb"), cell_text([0.5] * 8), cell_text(b"abc")
    ('null', 'a\\nb', '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … 2 more]', '3 bytes')
    """
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, list) and len(value) > _LIST_ITEMS_SHOWN_MAX:
        first = ", ".join(map(repr, value[:_LIST_ITEMS_SHOWN_MAX]))
        return on_one_line(f"[{first}, … {len(value) - _LIST_ITEMS_SHOWN_MAX} more]")
    text = on_one_line(str(value))
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"
