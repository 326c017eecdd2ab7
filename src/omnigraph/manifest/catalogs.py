"""The catalog of an accepted schema, compiled once per process.

Every snapshot carries its own schema, and most of them are equal: reading the stored form again
for each snapshot would cost more than a small write.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.schema import Catalog, stored_catalog

_CATALOGS_MAX: Final = 32


def catalog_of(schema: AcceptedSchema) -> Catalog:
    """Return what a schema declares; equal schemas share one catalog."""
    return _compiled(_Key(schema.source, schema.schema_hash, schema))


@dataclass(frozen=True)
class _Key:
    """A cache key: text and hash identify the schema, which is costly to compare itself."""

    source: str
    schema_hash: str
    schema: AcceptedSchema = field(compare=False)


@lru_cache(maxsize=_CATALOGS_MAX)
def _compiled(key: _Key) -> Catalog:
    return stored_catalog(key.source, key.schema.compiled)
