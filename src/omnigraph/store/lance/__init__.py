"""Datasets in Lance; the only home of that library."""

from omnigraph.store.late_pandas import without_pandas

with without_pandas():
    import pyarrow.dataset  # noqa: F401 before Lance imports it
