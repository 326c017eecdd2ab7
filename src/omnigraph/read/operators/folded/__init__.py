"""Hops of an aggregate that are counted instead of written out."""
