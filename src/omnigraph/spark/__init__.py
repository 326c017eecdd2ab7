"""Everything that runs on Spark; the only package that imports pyspark."""

from omnigraph.spark.attach import AttachError, attach, detach
from omnigraph.spark.session import (
    JavaMissingError,
    SparkConnectMissingError,
    SparkMissingError,
    SparkStartError,
    get_spark,
    java_problem,
    register,
)
from omnigraph.spark.worker_check import worker_problem

__all__ = [
    "AttachError",
    "JavaMissingError",
    "SparkConnectMissingError",
    "SparkMissingError",
    "SparkStartError",
    "attach",
    "detach",
    "get_spark",
    "java_problem",
    "register",
    "worker_problem",
]
