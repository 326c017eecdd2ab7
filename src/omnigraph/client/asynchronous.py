"""A graph for programs that await: over HTTP natively, a local one through threads."""

from __future__ import annotations


class AsyncGraph:
    """To be written."""
