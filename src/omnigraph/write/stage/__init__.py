"""Turns rows that are new, changed or removed into transactions that are not committed yet."""
