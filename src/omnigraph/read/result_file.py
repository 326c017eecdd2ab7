"""One Arrow table as one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pyarrow as pa

from omnigraph.names import one_of
from omnigraph.read.late import parquet


def write_table(table: pa.Table, path: Path, form: Literal["arrow", "parquet"]) -> None:
    """Write a temporary file next to the path, then move it there."""
    one_of(("arrow", "parquet"), form, "file format")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if form == "parquet":
            parquet.write_table(table, unfinished, compression="zstd")
        else:
            with pa.ipc.new_file(unfinished, table.schema) as writer:
                writer.write_table(table)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
