"""Commands that test a graph and check its rows."""
