"""Settles conflicts of rows, and turns a merge of rows into what is written."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.merge.stage import Part, StoredPart, TableWork

if TYPE_CHECKING:
    from omnigraph.changes.table_changes import RowRefs
    from omnigraph.merge.rows import TableMerge
    from omnigraph.schema import EdgeType, NodeType
    from omnigraph.store.datasets import DatasetHandle


class Prefer(StrEnum):
    """Whose row stands when both sides have changed it."""

    SOURCE = "source"
    TARGET = "target"


def resolved(
    merge: TableMerge, owner: NodeType | EdgeType, source: DatasetHandle, prefer: Prefer | None
) -> TableWork:
    """Return what is written to a table, conflicts settled in favour of one side."""
    inserted: list[RowRefs] = [merge.inserted]
    updated: list[RowRefs] = [merge.updated]
    deleted = [merge.deleted]
    for clash in merge.clashes if prefer is Prefer.SOURCE else ():
        if clash.source is None:
            deleted.append(clash.ids)
        elif clash.target is None:
            inserted.append(clash.source)
        else:
            updated.append(clash.source)
    return TableWork(
        owner,
        tuple(_parts(source, inserted)),
        tuple(_parts(source, updated)),
        pa.concat_arrays(deleted),
    )


def _parts(source: DatasetHandle, refs: list[RowRefs]) -> Iterator[Part]:
    return (StoredPart(source, each) for each in refs if len(each))
