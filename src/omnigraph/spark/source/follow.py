"""A type at the head of its branch, looked up by the task that reads it.

Spark plans a view once and uses the plan for every query. What a plan names stays as it is, so the
head is looked up when rows are read; by one task, so that all of them are of one commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.spark.source.options import FOLLOW, SourceOptionError, SourceOptions
from omnigraph.spark.source.pin import pin_snapshot
from omnigraph.spark.source.scan import read_fragments
from omnigraph.spark.source.tables import plan_table


@dataclass(frozen=True)
class HeadOfType:
    """What the task reads, and the columns that Spark expects of it."""

    kind: str
    name: str
    options: SourceOptions
    schema: pa.Schema

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the head as it is now."""
        plan = plan_table(self.kind, self.name, pin_snapshot(self.options), self.options)
        if not plan.scan.schema.equals(self.schema):
            problem = (
                f"reads `{self.name}`, whose columns have changed since: attach or read it again"
            )
            raise SourceOptionError(FOLLOW, problem)
        for part in plan.parts:
            yield from read_fragments(plan.scan, part)
