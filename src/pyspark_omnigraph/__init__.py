"""Lets Spark find the format `omnigraph` by itself.

Spark imports every installed module whose name starts with `pyspark_` and registers its
`DefaultSource`, so `spark.read.format("omnigraph")` needs neither a jar nor a call.
"""

from omnigraph.spark.source.data_source import OmnigraphSource as DefaultSource

__all__ = ["DefaultSource"]
