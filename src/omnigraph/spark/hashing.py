"""The hashes of loads, as tasks use them: see `omnigraph.write.load.check.hashing`."""

from __future__ import annotations

from omnigraph.write.load.check.hashing import Hashes, HashScheme
from omnigraph.write.stage.columns import Mask

__all__ = ["HashScheme", "Hashes", "Mask"]
