"""Rows of a result as Python dictionaries: ours against pandas, from the same Arrow columns.

    python -m bench rows [rows]

For each kind of row: seconds of `to_pandas().to_dict("records")`, of `to_pylist`, and their ratio.
The bar is a ratio of at most 3.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.read.result import QueryResult, Target
from omnigraph.values import PropType, Scalar

ROWS = 200_000
REPEATS = 5
BAR = 3.0


@dataclass(frozen=True)
class Column:
    """A column of a result."""

    header: str
    prop_type: PropType


def columns(count: int) -> dict[str, tuple[PropType, pa.Array]]:
    """Return one column of each kind."""
    numbers = np.arange(count, dtype=np.int64)
    nulls = numbers % 3 == 0
    texts = pa.array([f"person-{number}" for number in range(count)])
    return {
        "text": (PropType(Scalar.STRING), texts),
        "whole": (PropType(Scalar.I64), pa.array(numbers)),
        "float": (PropType(Scalar.F64), pa.array(numbers * 0.5)),
        "null": (PropType(Scalar.I64, nullable=True), pa.array(numbers, mask=nulls)),
        "day": (
            PropType(Scalar.DATE),
            pa.array((numbers % 20_000).astype("int32")).cast(pa.date32()),
        ),
        "moment": (PropType(Scalar.DATETIME), pa.array(numbers * 1_000).view(pa.date64())),
        "list": (PropType(Scalar.STRING, is_list=True), pa.array([["a", "b"]] * count)),
    }


def result_of(found: dict[str, tuple[PropType, pa.Array]], names: tuple[str, ...]) -> QueryResult:
    """Return a result with some of the columns."""
    shown = tuple(Column(name, found[name][0]) for name in names)
    return QueryResult("", shown, tuple(found[name][1] for name in names), Target("main"), "")


def seconds(work: Callable[[], object]) -> float:
    """Return the shortest processor time of several runs."""
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    """Measure each kind of row, and print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    found = columns(count)
    print(f"| {count:,} rows of | pandas s | ours s | ratio (bar {BAR:g}) |")
    print("|---|---|---|---|")
    for names in (("text", "whole", "float"), ("text", "null", "day"), tuple(found)):
        result = result_of(found, names)
        peer = seconds(lambda result=result: result.to_pandas().to_dict("records"))
        ours = seconds(result.to_pylist)
        print(f"| {', '.join(names)} | {peer:.2f} | {ours:.2f} | {ours / peer:.2f} |")


if __name__ == "__main__":
    main()
