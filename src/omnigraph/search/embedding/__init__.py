"""Text becomes vectors: client, providers, and the table that remembers them."""
