"""What only an answer that goes to a file needs: imported at its first use."""

from typing import TYPE_CHECKING

from omnigraph.late import LateModule

if TYPE_CHECKING:
    from pyarrow import parquet
else:
    parquet = LateModule("pyarrow.parquet")

__all__ = ["parquet"]
