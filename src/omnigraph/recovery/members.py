"""Members of stored records that name data; a forged one must not reach anything else."""

from __future__ import annotations

from typing import Annotated

from omnigraph.names import TableKey
from omnigraph.records import Stored
from omnigraph.store.uri import is_clean_path


def read_path(at: Stored) -> str:
    """Take the path of a dataset below the root, or the name of a lineage."""
    if not is_clean_path(at.text()):
        raise at.fail("the path of a dataset")
    return at.text()


def read_table_key(at: Stored) -> TableKey:
    """Take the key of a table."""
    found = TableKey(at.text())
    if not found.is_valid:
        raise at.fail("the key of a table")
    return found


StoredPath = Annotated[str, read_path]
StoredKey = Annotated[str, read_table_key]
