"""Indexes, embeddings, rank fusion and edge topology: derived state that reads can do without."""
