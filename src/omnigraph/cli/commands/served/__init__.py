"""Commands that only a server answers."""
