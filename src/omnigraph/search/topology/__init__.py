"""The edges of a type as adjacency arrays: built, stored, extended and traversed."""
