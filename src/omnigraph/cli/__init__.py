"""The `omnigraph` command line."""

from omnigraph.cli.app import main

__all__ = ["main"]
