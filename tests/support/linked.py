"""Lets merges take over files of tables of any size, or of none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph.merge import links

EVERY_TABLE: Final = links.LinkLimits(rows_min=0, rows_per_fragment_min=0)
NO_TABLE: Final = links.LinkLimits(rows_min=1 << 62)


@contextmanager
def link_limits(limits: links.LinkLimits) -> Iterator[None]:
    """Set the limits inside of the block."""
    before, links.limits = links.limits, limits
    try:
        yield
    finally:
        links.limits = before


@contextmanager
def links_of_any_size() -> Iterator[None]:
    """Link every table that can be linked, however small."""
    with link_limits(EVERY_TABLE):
        yield
