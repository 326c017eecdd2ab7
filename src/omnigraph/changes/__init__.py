"""Row differences between snapshots, and the change feed."""
