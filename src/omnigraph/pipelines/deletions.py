"""Which rows a followed source does not give any more.

A step is a function of the rows of its sources. Its rows before the changes, without its rows after
them, are what has to go: rows that were deleted, that a view leaves out now, or that have another
id. Joins with other streams see the rows of this micro-batch only.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.names import TableKey
from omnigraph.pipelines.file.model import PipelineFile
from omnigraph.pipelines.mapping import Mapped
from omnigraph.spark.steps import Workspace, mapped_ids


def left_ids(
    file: PipelineFile, workspace: Workspace, steps: Sequence[Mapped]
) -> dict[str, list[str]]:
    """Return the ids to delete in each table, edges first; the tables show other rows then."""
    after = _ids(workspace, steps)
    workspace.show_rows_before()
    for name, sql in file.views.items():
        workspace.add_view(name, sql)
    before = _ids(workspace, steps)
    ordered = sorted(before, key=lambda key: (not TableKey(key).is_edge, key))
    return {key: sorted(before[key] - after[key]) for key in ordered}


def _ids(workspace: Workspace, steps: Sequence[Mapped]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in steps:
        frame = workspace.mapped(one.step.source, one.expressions, one.what)
        ids = mapped_ids(one.entity_type, workspace.whole(frame, one.what))
        found.setdefault(one.entity_type.table_key, set()).update(ids)
    return found
