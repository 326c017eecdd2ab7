"""Which rows a followed source does not give any more.

A step is a function of the rows of its sources. Its rows before the changes, without its rows after
them, may have to go: rows that were deleted, that a view leaves out now, or that have another id.
What a step still makes of other rows stays: one person less does not remove a country. Joins with
streams of files see the rows of this micro-batch only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omnigraph.names import TableKey
from omnigraph.pipelines.file.model import PipelineFile
from omnigraph.pipelines.mapping import Mapped
from omnigraph.spark.steps import Workspace, mapped_ids


def left_ids(
    file: PipelineFile,
    workspace: Workspace,
    leaving: Sequence[Mapped],
    steps: Sequence[Mapped],
) -> dict[str, list[str]]:
    """Return the ids to delete in each table, edges first; the tables show other rows then.

    `leaving` are those of all steps that read changes.
    """
    after = _ids(workspace, _frames(workspace, leaving))
    workspace.show_rows_before()
    _add_views(file, workspace)
    frames = _frames(workspace, leaving)
    before = _ids(workspace, frames)
    gone = {key: ids - after[key] for key, ids in before.items()}
    asked = [
        one
        for one in steps
        if gone.get(one.entity_type.table_key) and not _has_own_ids(file, one, steps)
    ]
    if asked:
        workspace.show_all_rows()
        _add_views(file, workspace)
        for key, ids in _still_given(workspace, asked, frames).items():
            gone[key] -= ids
    ordered = sorted(gone, key=lambda key: (not TableKey(key).is_edge, key))
    return {key: sorted(gone[key]) for key in ordered}


def _has_own_ids(file: PipelineFile, one: Mapped, steps: Sequence[Mapped]) -> bool:
    """Whether rows have the ids of the rows that they are made of, so no other row can give one."""
    of_type = [other for other in steps if other.entity_type.table_key == one.entity_type.table_key]
    is_copy = one.expressions.get("id", "").strip("` ") == "id"
    return len(of_type) == 1 and is_copy and one.step.source in file.sources


def _still_given(
    workspace: Workspace, steps: Sequence[Mapped], before: Sequence[tuple[Mapped, Any]]
) -> dict[str, set[str]]:
    """Return the ids of rows before the changes that steps give for all rows as they are now."""
    found: dict[str, set[str]] = {}
    for one, frame in _frames(workspace, steps):
        key, columns = one.entity_type.table_key, _identity(one)
        for other, rows in before:
            if other.entity_type.table_key == key and _identity(other) == columns:
                shared = workspace.shared_rows(frame, rows, columns, one.what)
                ids = mapped_ids(one.entity_type, workspace.whole(shared, one.what))
                found.setdefault(key, set()).update(ids)
    return found


def _identity(one: Mapped) -> tuple[str, ...]:
    """Return the columns of a step that make the id of a row."""
    return ("id",) if "id" in one.expressions else tuple(one.entity_type.key)


def _add_views(file: PipelineFile, workspace: Workspace) -> None:
    for name, sql in file.views.items():
        workspace.add_view(name, sql)


def _frames(workspace: Workspace, steps: Sequence[Mapped]) -> list[tuple[Mapped, Any]]:
    return [(one, workspace.mapped(one.step.source, one.expressions, one.what)) for one in steps]


def _ids(workspace: Workspace, frames: Sequence[tuple[Mapped, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one, frame in frames:
        ids = mapped_ids(one.entity_type, workspace.whole(frame, one.what))
        found.setdefault(one.entity_type.table_key, set()).update(ids)
    return found
