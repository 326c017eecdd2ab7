"""The rules that look at several rows of a load."""
