"""The hashes of loads, as tasks use them: see `omnigraph.write.hashing`."""

from __future__ import annotations

from omnigraph.write.columns import Mask
from omnigraph.write.hashing import Hashes, HashScheme

__all__ = ["HashScheme", "Hashes", "Mask"]
