"""Contracts: what must hold of the stored rows of a type, and the one pass that finds out."""
