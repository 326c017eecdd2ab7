"""Which reader answers which options."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from omnigraph.spark.source.feed import plan_feed_batch
from omnigraph.spark.source.options import SourceOptions, reads_feed, subject_of
from omnigraph.spark.source.query import QueryReader, plan_query
from omnigraph.spark.source.scan import Pin, TypeReader
from omnigraph.spark.source.system import SystemReader, plan_system
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
        return Planned(query.schema, QueryReader(query))
    if kind == "system":
        system = plan_system(name, pin, options)
        return Planned(system.schema, SystemReader(system))
    table = plan_table(kind, name, pin, options)
    return Planned(table.scan.schema, TypeReader(table))
