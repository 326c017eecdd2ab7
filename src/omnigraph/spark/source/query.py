"""Reads the result of a query, answered in process by one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.graph import Graph, OpenMode, ReadTarget
from omnigraph.query import ReadPlan, compile_query, parse_queries
from omnigraph.query.select import require_kind, select_query
from omnigraph.spark.source.options import SourceOptionError, SourceOptions, refuse_options
from omnigraph.spark.source.pin import open_pinned
from omnigraph.spark.source.scan import Pin
from omnigraph.spark.types import arrow_type, travelling
from omnigraph.texts import read_json

if TYPE_CHECKING:
    from omnigraph.query.plan.plan import OutputColumn


@dataclass(frozen=True)
class QueryScan:
    """A query to be run on a pinned snapshot."""

    pin: Pin
    text: str
    name: str
    params: dict[str, Any]
    schema: pa.Schema


def plan_query(text: str, pin: Pin, options: SourceOptions) -> QueryScan:
    """Compile a query on the schema of the snapshot, so that the columns are known."""
    refuse_options(options, "query", ("columns", "filter", "fragmentsPerPartition"))
    file = parse_queries(text)
    query = select_query(file, options["queryName"])
    require_kind(query, expect_mutation=False)
    plan = compile_query(query, open_pinned(pin).catalog, file.source)
    columns = plan.columns if isinstance(plan, ReadPlan) else ()
    return QueryScan(pin, text, query.name, _params(options), _schema(columns))


def graph_of(pin: Pin) -> Graph:
    """Open the graph of a pin for reading only."""
    return Graph.open(
        pin.settings.root.uri,
        branch=pin.branch,
        mode=OpenMode.READ_ONLY,
        storage_options=pin.settings.storage_options,
        auto_optimize=False,
    )


def run_query(scan: QueryScan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the answer."""
    target = ReadTarget.commit(scan.pin.commit_id)
    result = graph_of(scan.pin).query(scan.text, scan.name, scan.params, target=target)
    for batch in result.batches():
        if batch.num_rows:
            yield travelling(batch, scan.schema)


def _schema(columns: tuple[OutputColumn, ...]) -> pa.Schema:
    counts = Counter(column.header for column in columns)
    repeated = next((header for header, count in counts.items() if count > 1), None)
    if repeated is not None:
        problem = f"returns two columns called `{repeated}`; name them apart with `as`"
        raise SourceOptionError("query", problem)
    return pa.schema([pa.field(column.header, arrow_type(column.prop_type)) for column in columns])


def _params(options: SourceOptions) -> dict[str, Any]:
    text = options["queryParams"]
    if text is None:
        return {}
    try:
        params = read_json(text)
    except ValueError as error:
        raise SourceOptionError("queryParams", f"is no JSON: {error}") from None
    if not isinstance(params, dict):
        raise SourceOptionError("queryParams", "is a JSON object of parameters")
    return params
