"""Spark writes into a graph: one type from a frame, micro-batches of a stream."""
