"""Keeps a graph small, fast and sound: optimize, indexes, cleanup, repair, scrub, health."""
