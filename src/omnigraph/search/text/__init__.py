"""Text indexes in memory, edit distance, rank fusion."""
