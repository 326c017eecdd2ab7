"""Changes as lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.cluster.compare.diff import Change


def change_lines(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return a line for each change, and one for each step of its migration below it."""
    lines = [line for change in changes for line in _lines(change)]
    return tuple(lines or ["  no changes"])


def _lines(change: Change) -> list[str]:
    parts = [f"  {change.operation.capitalize()} {change.resource}"]
    if change.metadata_change == "policy_bindings":
        parts.append("[bindings]")
    elif change.metadata_change == "embedding_profile":
        parts.append("[profile]")
    if change.disposition is not None:
        reason = f": {change.reason}" if change.reason else ""
        parts.append(f"[{change.disposition.capitalize()}{reason}]")
    return [" ".join(parts), *(f"    - {step}" for step in change.steps)]
