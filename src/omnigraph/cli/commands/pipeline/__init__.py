"""`omnigraph pipeline …`."""
