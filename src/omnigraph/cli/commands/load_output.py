"""What people read after a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.graph import LoadResult


def load_text(result: LoadResult) -> str:
    """Say what was loaded, type by type."""
    lines = [f"loaded {result.total_entities} entities into {result.branch} ({result.mode})"]
    if result.branch_created:
        lines.append(f"created branch {result.branch} from {result.base_branch}")
    lines += [f"  node {name}: {count}" for name, count in result.nodes]
    lines += [f"  edge {name}: {count}" for name, count in result.edges]
    if result.unchanged or result.rejected:
        counts = {
            "inserted": result.inserted,
            "updated": result.updated,
            "unchanged": result.unchanged,
            "rejected": result.rejected,
        }
        lines.append(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    commit = result.commit
    lines.append("nothing to commit" if commit is None else f"commit {commit.graph_commit_id}")
    return "\n".join(lines)
