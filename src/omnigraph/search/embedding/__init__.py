"""Vectors from text: client, providers, and the table that records them."""
