"""Codes of identity resolution, migration planning and the drift check."""

from __future__ import annotations

from typing import Final

IDENTITY_CODES: Final = {
    "S301": "a rename hint names nothing in the accepted schema",
    "S302": "a rename hint names a declaration of another kind",
    "S303": "a rename hint names a property of another type",
    "S304": "a rename hint stands on a property of a new type",
    "S305": "two declarations claim the same accepted one",
}
"""`schema identity resolution failed: …`; every one of them stops planning."""

MIGRATION_CODES: Final = {
    "OG-DS-101": "a populated graph would be dropped (reserved)",
    "OG-DS-102": "a node type would be dropped (reserved: drops are planned)",
    "OG-DS-103": "an edge type would be dropped (reserved: drops are planned)",
    "OG-DS-104": "a property would be dropped (reserved: drops are planned)",
    "OG-DS-105": "a vector property would be dropped (reserved: drops are planned)",
    "OG-MF-103": "a new required property requires a backfill",
    "OG-MF-104": "stored rows hold null in a property that becomes required",
    "OG-MF-106": "a property's type changes in a way that stored values cannot follow",
}
"""Codes of steps. All have the severity `error`."""

DRIFT_CODES: Final = {
    "S401": "the stored compiled schema is malformed",
    "S402": "the stored schema state is malformed",
    "S403": "the compiled schema and its recorded hash disagree",
    "S404": "the schema's meaning and its recorded shape hash disagree",
    "S405": "compiled schema and state belong to different identity domains",
    "S406": "a type of the schema has no live dataset",
    "S407": "a live dataset has no type in the schema",
    "S408": "a live dataset belongs to another lifetime of its type",
    "S409": "the stored text and the stored compiled schema mean different things",
}
"""`accepted schema/manifest identity mismatch: …`; a conflict, nothing was changed."""

PLAN_CODES: Final = {**IDENTITY_CODES, **MIGRATION_CODES, **DRIFT_CODES}
"""Every code of this module, for the documentation and its test."""
