"""Everything that runs on Spark; the only room that imports pyspark."""

from omnigraph.spark.session import JavaMissingError, SparkMissingError, get_spark, java_problem
from omnigraph.spark.workers import worker_problem

__all__ = ["JavaMissingError", "SparkMissingError", "get_spark", "java_problem", "worker_problem"]
