"""The steps of a declared pipeline as DataFrames: sources, views, mappings, checks."""

from omnigraph.spark.steps.failures import SparkStepError
from omnigraph.spark.steps.sample import SampleCheck, check_sample
from omnigraph.spark.steps.workspace import FileInfo, HighMark, SourceRead, Workspace

__all__ = [
    "FileInfo",
    "HighMark",
    "SampleCheck",
    "SourceRead",
    "SparkStepError",
    "Workspace",
    "check_sample",
]
