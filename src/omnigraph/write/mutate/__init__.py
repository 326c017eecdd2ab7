"""One mutation query, one commit."""
