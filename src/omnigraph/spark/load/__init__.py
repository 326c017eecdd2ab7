"""Bulk load as Spark tasks: tasks stage rows, the driver commits once."""
