"""The operators of a read plan."""
