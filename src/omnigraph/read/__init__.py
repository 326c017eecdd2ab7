"""Runs a typed read plan on one snapshot and yields Arrow batches."""
