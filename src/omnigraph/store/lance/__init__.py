"""Datasets in Lance; the only home of that library."""
