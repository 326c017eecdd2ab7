"""The `omnigraph` command line."""

from omnigraph.cli.app import main, serve

__all__ = ["main", "serve"]
