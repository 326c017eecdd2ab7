"""What one query of a client may cost.

A request may ask for less than the limits of the server, and never for more. Without them a few
queries that do not end would take all threads, and no other request would be answered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.graph import MEMORY_MAX_DEFAULT
from omnigraph.server.errors import RequestError

_TIMEOUT_MS: Final = "OMNIGRAPH_QUERY_TIMEOUT_MS"
_ROWS: Final = "OMNIGRAPH_QUERY_ROWS_MAX"
_MEMORY_MIB: Final = "OMNIGRAPH_QUERY_MEMORY_MIB"
TIMEOUT_MS_DEFAULT: Final = 300_000
ROWS_MAX_DEFAULT: Final = 1_000_000
_BYTES_PER_MIB: Final = 1 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueryLimits:
    """The most that one query may take."""

    timeout_ms: int = TIMEOUT_MS_DEFAULT
    rows_max: int = ROWS_MAX_DEFAULT
    memory_max: int = MEMORY_MAX_DEFAULT

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> QueryLimits:
        """Read the limits; a malformed number is warned about and replaced by the default."""
        memory_mib = number_of(environ, _MEMORY_MIB, MEMORY_MAX_DEFAULT // _BYTES_PER_MIB)
        return cls(
            number_of(environ, _TIMEOUT_MS, TIMEOUT_MS_DEFAULT),
            number_of(environ, _ROWS, ROWS_MAX_DEFAULT),
            memory_mib * _BYTES_PER_MIB,
        )

    def lowered(self, timeout_ms: int | None, rows_max: int | None) -> QueryLimits:
        """Return the limits of a request, which may be lower than these."""
        return QueryLimits(
            _lower(self.timeout_ms, timeout_ms, "timeout_ms"),
            _lower(self.rows_max, rows_max, "max_rows"),
            self.memory_max,
        )


def _lower(limit: int, asked: int | None, name: str) -> int:
    if asked is None:
        return limit
    if asked < 0:
        raise RequestError(f"{name} must be 0 or more")
    return min(limit, asked)


def number_of(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return a number of the environment; a malformed one is warned about."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        _log.warning("%s is not a number: %s is used", name, default)
        return default
    return int(text)
