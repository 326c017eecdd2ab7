"""The type check of a query against a catalog."""
