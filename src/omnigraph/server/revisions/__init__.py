"""Applied revisions of a cluster: from ledger to open graphs, and from one revision to the next."""
