"""Comparing the files of a graph with what was written."""
