"""Asks Spark's Python workers what they have installed."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

_NEEDED: Final = ("omnigraph", "pylance", "pyarrow")


def worker_problem(spark: SparkSession) -> str | None:
    """Return in one sentence what the workers lack, or None."""
    needed = {name: importlib.metadata.version(name) for name in _NEEDED}

    # Pickled by value, because a worker without omnigraph could not find it by name.
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib.metadata  # noqa: PLC0415 runs on a worker

        import pyarrow  # noqa: PLC0415 runs on a worker

        problems = []
        for name, version in needed.items():
            try:
                found = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                problems.append(f"{name} is not installed")
            else:
                if found != version:
                    problems.append(f"{name} is {found} there and {version} here")
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"problem": [", ".join(problems)]})

    rows = spark.range(1).mapInArrow(look, "problem string").collect()
    problem = next((row["problem"] for row in rows if row["problem"]), None)
    return None if problem is None else f"on Spark's Python workers {problem}"
