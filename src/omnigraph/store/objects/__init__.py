"""Small objects under a root: on a local disk or in an object store."""
