"""What people read after a load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnigraph.graph import LoadResult

_WORTH_SAYING: Final = ("updated", "unchanged", "deleted", "rejected", "superseded")
"""A load that only inserts needs no counts by kind."""


def load_text(result: LoadResult) -> str:
    """Return what was loaded, type by type."""
    verb = "would load" if result.is_dry_run else "loaded"
    lines = [f"{verb} {result.total_entities} entities into {result.branch} ({result.mode})"]
    if result.branch_created:
        lines.append(f"created branch {result.branch} from {result.base_branch}")
    lines += [f"  node {name}: {count}" for name, count in result.nodes]
    lines += [f"  edge {name}: {count}" for name, count in result.edges]
    removed = result.cascaded or {}
    lines += [f"  edge {name}: {count} removed with their nodes" for name, count in removed.items()]
    counts = {
        "inserted": result.inserted,
        "updated": result.updated,
        "unchanged": result.unchanged,
        "deleted": result.deleted,
        "rejected": result.rejected,
        "superseded": result.superseded,
    }
    if result.is_dry_run or any(counts[name] for name in _WORTH_SAYING):
        lines.append(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    lines += _nulled_lines(result)
    lines += [f"warning: {text}" for text in result.warnings]
    if result.is_dry_run:
        return "\n".join([*lines, "dry run, nothing was written"])
    commit = result.commit
    lines.append("nothing to commit" if commit is None else f"commit {commit.graph_commit_id}")
    return "\n".join(lines)


def _nulled_lines(result: LoadResult) -> list[str]:
    named = (*result.node_counts.items(), *result.edge_counts.items())
    return [
        f"{count} values of {name}.{prop} became null"
        for name, counts in named
        for prop, count in counts.nulled.items()
    ]
