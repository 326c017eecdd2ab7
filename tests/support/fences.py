"""Publishes of releases that knew no fence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.records import StagedTransaction


@contextmanager
def without_looking_for_gaps() -> Iterator[None]:
    """Commit as object stores and older releases do, whatever was removed since the base."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanceOpener, "has_gap_since", lambda _opener, _base: False)
        yield


def unfenced(staged: StagedTransaction, fence: int) -> StagedTransaction:
    """Return a publish as releases without the fence staged it."""
    transaction = staged.payload
    operation = transaction.operation  # type: ignore[attr-defined]  # the library's object
    updated = [fragment for fragment in operation.updated_fragments if fragment.id != fence]
    bare = replace(transaction, operation=replace(operation, updated_fragments=updated))  # type: ignore[type-var]  # a dataclass
    return replace(staged, payload=bare)
