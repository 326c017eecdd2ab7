"""The rows of a snapshot as files."""
