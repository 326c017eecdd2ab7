"""Paths under the root of a graph."""

from __future__ import annotations

import re
from typing import Final

from omnigraph.clock import CROCKFORD
from omnigraph.dataclass import dataclass
from omnigraph.names import MAIN, SCHEMA_APPLY_LOCK, BranchName, is_schema_mark
from omnigraph.store.digests import CHECKSUMS
from omnigraph.texts import fnv1a64

MANIFEST: Final = "__manifest"
COMMITS: Final = "_graph_commits.lance"
COMMIT_ACTORS: Final = "_graph_commit_actors.lance"
RECOVERIES: Final = "_graph_commit_recoveries.lance"
DERIVED_TABLES: Final = (COMMITS, COMMIT_ACTORS, RECOVERIES)
TABLE_FOLDERS: Final = ("nodes", "edges")
SCHEMA_SOURCE: Final = "_schema.pg"
SCHEMA_IR: Final = "_schema.ir.json"
SCHEMA_STATE: Final = "__schema_state.json"
SCHEMA_FILES: Final = (SCHEMA_SOURCE, SCHEMA_IR, SCHEMA_STATE)

__all__ = [
    "CHECKSUMS",
    "COMMITS",
    "COMMIT_ACTORS",
    "DERIVED_TABLES",
    "MAIN_INCARNATION",
    "MANIFEST",
    "RECOVERIES",
    "SCHEMA_FILES",
    "SCHEMA_IR",
    "SCHEMA_SOURCE",
    "SCHEMA_STATE",
    "TABLE_FOLDERS",
    "Incarnation",
    "dataset_location",
    "schema_mark",
]

_FOLDERS: Final = {"node": "nodes", "edge": "edges"}
_ULID: Final = re.compile(rf"[{CROCKFORD}]{{26}}")


def dataset_location(kind: str, type_name: str, operation_id: str | None = None) -> str:
    """Return the path of a new dataset.

    `init` uses the plain name. Every later operation adds its own id, so it can meet neither an
    older dataset of the type nor the leftover of a failed attempt.

    >>> dataset_location("node", "Person")
    'nodes/40d76f1f51639ec0'
    """
    plain = f"{_FOLDERS[kind]}/{fnv1a64(type_name)}"
    return plain if operation_id is None else f"{plain}-{operation_id}"


@dataclass(frozen=True, order=True)
class Incarnation:
    """A branch from its creation to its deletion.

    The text is `main`, or `<branch>.<ulid>`, which is never used twice.

    >>> Incarnation("team/etl.01JC0000000000000000000000").branch.text
    'team/etl'
    """

    text: str

    @classmethod
    def new(cls, branch: BranchName, ulid: str) -> Incarnation:
        """Name a new incarnation of a branch."""
        return cls(f"{branch}.{ulid}")

    @classmethod
    def of_lance_branch(cls, name: str) -> Incarnation | None:
        """Read the name of a branch of `__manifest`; None for an internal or foreign one."""
        public, dot, ulid = name.rpartition(".")
        if not dot or not _ULID.fullmatch(ulid) or is_schema_mark(public):
            return None
        return cls(name)

    @property
    def is_main(self) -> bool:
        """Whether this is the branch that every graph has."""
        return self.text == MAIN

    @property
    def branch(self) -> BranchName:
        """The public name."""
        return BranchName(MAIN if self.is_main else self.text.rpartition(".")[0])

    @property
    def lance_branch(self) -> str | None:
        """The name of the branch of `__manifest`; None is its main lineage."""
        return None if self.is_main else self.text

    def __str__(self) -> str:
        return self.text


def schema_mark(incarnation: Incarnation) -> str:
    """Return the branch of `__manifest` that marks a schema change of a branch as under way.

    >>> schema_mark(MAIN_INCARNATION)
    '__schema_apply_lock__'
    """
    if incarnation.is_main:
        return SCHEMA_APPLY_LOCK
    return f"{SCHEMA_APPLY_LOCK}.{incarnation}"


MAIN_INCARNATION: Final = Incarnation(MAIN)
