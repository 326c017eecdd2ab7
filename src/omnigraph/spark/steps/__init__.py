"""The steps of a declared pipeline as DataFrames: sources, views, mappings, checks."""

from omnigraph.spark.steps.failures import SparkStepError
from omnigraph.spark.steps.sample import SampleCheck, check_sample, mapped_ids
from omnigraph.spark.steps.stream import (
    SMALL_BYTES,
    MicroBatch,
    MicroBatches,
    StreamReads,
    add_stream_columns,
    stream_frame,
)
from omnigraph.spark.steps.workspace import FileInfo, HighMark, SourceRead, Workspace

__all__ = [
    "SMALL_BYTES",
    "FileInfo",
    "HighMark",
    "MicroBatch",
    "MicroBatches",
    "SampleCheck",
    "SourceRead",
    "SparkStepError",
    "StreamReads",
    "Workspace",
    "add_stream_columns",
    "check_sample",
    "mapped_ids",
    "stream_frame",
]
