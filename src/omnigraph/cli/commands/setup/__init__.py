"""Commands around a graph: making one, its schema, addresses, the shell."""
