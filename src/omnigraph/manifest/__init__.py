"""Many datasets behave as one versioned graph: manifest, commits, branches, snapshots."""

from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.publish import CommitDraft, Published, Updates
from omnigraph.manifest.repository import OpenMode, Repository, init_repository, open_read_only
from omnigraph.manifest.requirements import Requirements
from omnigraph.manifest.rows import Entry, Registration, Tag
from omnigraph.manifest.snapshot import AnyTarget, ReadTarget, Snapshot

__all__ = [
    "AnyTarget",
    "CommitDraft",
    "Entry",
    "GraphCommit",
    "OpenMode",
    "Published",
    "ReadTarget",
    "Registration",
    "Repository",
    "Requirements",
    "Snapshot",
    "Tag",
    "Updates",
    "init_repository",
    "open_read_only",
]
