"""Publishes of releases that knew no fence."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.store.records import StagedTransaction


def unfenced(staged: StagedTransaction, fence: int) -> StagedTransaction:
    """Return a publish as releases without the fence staged it."""
    transaction = staged.payload
    operation = transaction.operation  # type: ignore[attr-defined]  # the library's object
    updated = [fragment for fragment in operation.updated_fragments if fragment.id != fence]
    bare = replace(transaction, operation=replace(operation, updated_fragments=updated))  # type: ignore[type-var]  # a dataclass
    return replace(staged, payload=bare)
