"""What one query may cost, and how it is stopped.

1. Exceeding a limit is a typed error, never a partial answer.
2. Memory is claimed before it is used: an operator states how many rows it is about to make.
3. Time and cancellation are checked before each operator, for each batch that a scan yields, at
   each level of an expansion and every million steps of a search, so it ends soon after its time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError, OmnigraphError

MEMORY_MAX_DEFAULT: Final = 4 * 1024**3
"""Bytes of row tables that one query may hold, as far as this is known in advance."""

BYTES_PER_CELL: Final = 8
_CELLS_PER_STEP: Final = 2
_BYTES_PER_MIB: Final = 1024**2


class QueryLimitError(InvalidInputError):
    """A query costs more than it may; nothing of its answer was returned."""

    code = "OG-QUERY-LIMIT"


class QueryTimeoutError(QueryLimitError):
    """A query took longer than its time."""

    code = "OG-QUERY-TIMEOUT"
    hint = "narrow the match, add a limit, or allow more time"
    template = "the query did not finish within {timeout_s:g} s"
    timeout_s: float


class RowLimitError(QueryLimitError):
    """A query has more result rows than it may return."""

    code = "OG-QUERY-ROWS"
    hint = "add a limit to the query, or allow more rows"
    template = "the result has {rows} rows, and at most {rows_max} are allowed"
    rows: int
    rows_max: int


class MemoryLimitError(QueryLimitError):
    """An operator of a query would need more memory than the query may use."""

    code = "OG-QUERY-MEMORY"
    hint = "narrow the match, connect its patterns, or allow more memory"
    operator: str
    rows: int
    needed: int
    memory_max: int

    def _message(self) -> str:
        return (
            f"{self.operator} would make {self.rows} rows, about {_mib(self.needed)}, and at most"
            f" {_mib(self.memory_max)} are allowed"
        )


class QueryCancelledError(OmnigraphError):
    """The caller cancelled the query."""

    code = "OG-QUERY-CANCELLED"
    hint = "run it again"
    template = "the query was cancelled"


@dataclass(frozen=True)
class Limits:
    """What one query may cost; None is no limit."""

    timeout_s: float | None = None
    rows_max: int | None = None
    memory_max: int | None = MEMORY_MAX_DEFAULT


NO_LIMITS: Final = Limits(memory_max=None)


class Guard:
    """Watches over one running query."""

    def __init__(
        self, limits: Limits, clock: Clock, cancelled: threading.Event | None = None
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._cancelled = cancelled
        self._ends_s = None if limits.timeout_s is None else clock.monotonic_s() + limits.timeout_s

    def check(self) -> None:
        """Raise when the time is over or the query was cancelled."""
        if self._cancelled is not None and self._cancelled.is_set():
            raise QueryCancelledError
        if self._ends_s is not None and self._clock.monotonic_s() > self._ends_s:
            raise QueryTimeoutError(self._limits.timeout_s or 0)

    def claim(self, operator: str, *, rows: int, cells: int = 1) -> None:
        """Raise when `rows` rows of `cells` numbers each are too much to hold."""
        self.check()
        memory_max = self._limits.memory_max
        needed = rows * cells * BYTES_PER_CELL
        if memory_max is not None and needed > memory_max:
            raise MemoryLimitError(
                operator=operator, rows=rows, needed=needed, memory_max=memory_max
            )

    def claim_bytes(self, operator: str, *, rows: int, needed: int) -> None:
        """Raise when `needed` bytes are too much to hold."""
        self.claim(operator, rows=rows, cells=max(1, needed // (BYTES_PER_CELL * max(rows, 1))))

    def fits(self, needed: int) -> bool:
        """Whether so many bytes are certainly not too much to hold."""
        return self._limits.memory_max is None or needed <= self._limits.memory_max

    def rows_that_fit(self, cells: int, default: int) -> int:
        """Return how many rows of `cells` numbers may be held, at most `default`."""
        memory_max = self._limits.memory_max
        if memory_max is None:
            return default
        return min(default, memory_max // (cells * BYTES_PER_CELL))

    def expect(self, rows: int) -> None:
        """Raise when an expansion would make too many rows."""
        self.claim("an expansion", rows=rows, cells=_CELLS_PER_STEP)

    def check_result(self, rows: int) -> None:
        """Raise when the result has too many rows."""
        self.check()
        rows_max = self._limits.rows_max
        if rows_max is not None and rows > rows_max:
            raise RowLimitError(rows=rows, rows_max=rows_max)

    def watched(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Read batches to the end, checking time and memory between them."""
        kept: list[pa.RecordBatch] = []
        held = rows = 0
        for batch in batches:
            kept.append(batch)
            # Counts whole buffers, which several batches may share: fast, and rarely too much.
            held += batch.get_total_buffer_size()
            rows += batch.num_rows
            self.check()
            if self._limits.memory_max is not None and held > self._limits.memory_max:
                held = sum(one.nbytes for one in kept)
                self.claim_bytes("a scan", rows=rows, needed=held)
        return kept


def _mib(count: int) -> str:
    return f"{count / _BYTES_PER_MIB:,.0f} MiB"
