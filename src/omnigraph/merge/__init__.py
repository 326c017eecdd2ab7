"""Three-way merge of branches: rows, conflicts, and the commit that joins two histories."""
