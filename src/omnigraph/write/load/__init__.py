"""Bulk load: records or tables become one commit."""
