"""Which reader answers which options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from omnigraph.spark.source.feed import plan_feed_batch
from omnigraph.spark.source.follow import HeadOfType
from omnigraph.spark.source.options import (
    FOLLOW,
    SourceOptions,
    is_set,
    reads_feed,
    refuse_options,
    subject_of,
)
from omnigraph.spark.source.query import plan_query, run_query
from omnigraph.spark.source.scan import OneTaskReader, Pin, TypeReader
from omnigraph.spark.source.system import plan_system, read_system
from omnigraph.spark.source.tables import plan_table


@dataclass(frozen=True)
class Planned:
    """A read that has been planned: its columns, and its reader."""

    schema: pa.Schema
    reader: DataSourceReader


def plan_read(options: SourceOptions, pin: Pin) -> Planned:
    """Plan what the options ask for, on a pinned snapshot."""
    if reads_feed(options):
        feed = plan_feed_batch(options, pin)
        return Planned(feed.schema, feed)
    kind, name = subject_of(options)
    if kind == "query":
        query = plan_query(name, pin, options)
        return Planned(query.schema, OneTaskReader(partial(run_query, query)))
    if kind == "system":
        system = plan_system(name, pin, options)
        return Planned(system.schema, OneTaskReader(partial(read_system, system)))
    table = plan_table(kind, name, pin, options)
    if is_set(options, FOLLOW):
        refuse_options(options, FOLLOW, ("versionAsOf", "timestampAsOf", "fragmentsPerPartition"))
        head = HeadOfType(kind, name, options, table.scan.schema)
        return Planned(table.scan.schema, OneTaskReader(head.rows))
    return Planned(table.scan.schema, TypeReader(table))
