"""Keys of datasets in the manifest."""

from __future__ import annotations


def node_key(type_name: str) -> str:
    """Return the key of a node type's dataset.

    >>> node_key("Crew")
    'node:Crew'
    """
    return f"node:{type_name}"


def edge_key(type_name: str) -> str:
    """Return the key of an edge type's dataset."""
    return f"edge:{type_name}"
