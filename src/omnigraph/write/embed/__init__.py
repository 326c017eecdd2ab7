"""Vectors that `@embed` asks for, made when rows are written."""
