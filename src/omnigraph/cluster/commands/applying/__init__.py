"""The steps of `apply`: graphs first, then catalog blobs, then deletions, then the ledger."""
