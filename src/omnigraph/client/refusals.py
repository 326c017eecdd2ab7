"""What works with storage at hand only, and is refused for a graph of a server."""

from __future__ import annotations

from typing import Final

from omnigraph.errors import InvalidInputError

_REASONS: Final = {
    "actor_id": "the server takes the actor from the token",
    "spark": "Spark runs where the storage is",
    "engine": "the server chooses the engine",
    "external_blob_bases": "the server decides what it reads from outside",
    "cancelled": "cancel the task of an `AsyncGraph` instead",
    "memory_max": "the server has its own limit",
    "progress": "`POST /load/ndjson` with `Accept: text/event-stream` tells it",
    "embed": "the server makes the vectors that are missing",
    "quarantine": "a server writes no folder of yours",
}


class NeedsStorageError(InvalidInputError):
    """An argument, an input or a method that a graph of a server cannot have."""

    code = "OG-NEEDS-STORAGE"
    hint = "open the graph by its root: `Graph.open(uri)`"
    template = "{what} is not for a graph of a server: {reason}"
    what: str
    reason: str = "it needs direct access to storage"


def refuse(**given: object) -> None:
    """Raise for the first argument that was given: one that is not None, empty or False."""
    for name, value in given.items():
        if value:
            reason = _REASONS.get(name)
            if reason is None:
                raise NeedsStorageError(f"`{name}`")
            raise NeedsStorageError(f"`{name}`", reason)


def refuse_engine(engine: str, spark: object | None) -> None:
    """Raise for another engine than the server's own, which `local` also means."""
    refuse(engine=engine not in ("auto", "local"), spark=spark is not None)
