"""Reads the input of a load: files, lines, records and tables become columns."""
