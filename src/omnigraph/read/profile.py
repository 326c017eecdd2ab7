"""What each operator did, measured while the query runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from typing import Any

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass


@dataclass(frozen=True)
class NodeAccess:
    """How an operator finds nodes of a type: which columns it compares with known values."""

    type_name: str
    is_scan: bool
    """Whether the nodes come from their table, and not over an edge."""
    columns: tuple[str, ...]
    """Those that an index can answer, if there is one."""


@dataclass
class OperatorTrace:
    """One operator as it ran."""

    operator: str
    details: dict[str, object] = field(default_factory=dict)
    rows: int | None = None
    elapsed_ms: float | None = None
    inner: list[OperatorTrace] = field(default_factory=list)
    access: NodeAccess | None = None
    """Known for explained operators that find nodes; no part of the JSON."""

    def as_json(self) -> dict[str, object]:
        """Return the record of this operator and those inside of it."""
        shape: dict[str, object] = {"operator": self.operator, **self.details}
        if self.rows is not None:
            shape["rows"] = self.rows
        if self.elapsed_ms is not None:
            shape["elapsed_ms"] = self.elapsed_ms
        if self.inner:
            shape["inner"] = [trace.as_json() for trace in self.inner]
        return shape


def trace_of(shape: Mapping[str, Any]) -> OperatorTrace:
    """Return the operator that a record of `as_json` stands for."""
    known = ("operator", "rows", "elapsed_ms", "inner")
    return OperatorTrace(
        shape["operator"],
        {name: value for name, value in shape.items() if name not in known},
        shape.get("rows"),
        shape.get("elapsed_ms"),
        [trace_of(one) for one in shape.get("inner", ())],
    )


@dataclass(eq=False)
class Profile:
    """Collects the traces of one query, in the order in which its operators ran."""

    clock: Clock
    is_on: bool = False
    """Whether a profile was requested; else nothing is measured."""
    traces: list[OperatorTrace] = field(default_factory=list)
    _open: list[OperatorTrace] = field(default_factory=list)

    def operator(self, name: str) -> AbstractContextManager[OperatorTrace]:
        """Measure one operator; operators that run inside become its parts."""
        return self._measured(name) if self.is_on else nullcontext(OperatorTrace(name))

    @contextmanager
    def _measured(self, name: str) -> Iterator[OperatorTrace]:
        trace = OperatorTrace(name)
        (self._open[-1].inner if self._open else self.traces).append(trace)
        self._open.append(trace)
        began_s = self.clock.monotonic_s()
        try:
            yield trace
        finally:
            trace.elapsed_ms = round((self.clock.monotonic_s() - began_s) * 1000, 3)
            self._open.pop()

    def note(self, **details: object) -> None:
        """Add facts to the operator that is running."""
        if self._open:
            self._open[-1].details.update(details)
