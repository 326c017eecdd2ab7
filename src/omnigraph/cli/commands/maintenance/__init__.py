"""Commands that check a graph and keep it in order."""
