"""What people read after a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.graph import LoadResult


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
    if result.unchanged or result.rejected or result.is_dry_run:
        counts = {
            "inserted": result.inserted,
            "updated": result.updated,
            "unchanged": result.unchanged,
            "rejected": result.rejected,
        }
        lines.append(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    lines += [f"warning: {warning}" for warning in result.warnings]
    if result.is_dry_run:
        return "\n".join([*lines, "dry run, nothing was written"])
    commit = result.commit
    lines.append("nothing to commit" if commit is None else f"commit {commit.graph_commit_id}")
    return "\n".join(lines)
