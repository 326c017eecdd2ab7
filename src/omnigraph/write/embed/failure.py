"""The failure of a provider as a small JSON text: `{"code": "OG-EMBED-…", "facts": {…}}`.

A task leaves it in the graph's storage, where others may write, and other tasks raise the same
error: only the errors below can come out of it, made from plain values.
"""

from __future__ import annotations

from typing import Final

import orjson

from omnigraph.errors import OmnigraphError
from omnigraph.search.embedding.errors import (
    EmbeddingDeadlineError,
    EmbeddingKeyMissingError,
    EmbeddingModelMismatchError,
    EmbeddingRequestError,
    EmbeddingResponseError,
    EmbeddingUnreachableError,
    EmbeddingVectorError,
    LocalModelError,
    UnknownEmbeddingProviderError,
)

_KINDS: Final[dict[str, type[OmnigraphError]]] = {
    kind.code: kind
    for kind in (
        EmbeddingDeadlineError,
        EmbeddingKeyMissingError,
        EmbeddingModelMismatchError,
        EmbeddingRequestError,
        EmbeddingResponseError,
        EmbeddingUnreachableError,
        EmbeddingVectorError,
        LocalModelError,
        UnknownEmbeddingProviderError,
    )
}


def failure_note(error: OmnigraphError) -> bytes | None:
    """Return the note of a provider's failure; None for any other error."""
    kind = _KINDS.get(error.code)
    if kind is None:
        return None
    facts = {name: getattr(error, name) for name in _facts(kind)}
    return orjson.dumps({"code": error.code, "facts": facts})


def provider_failure(note: bytes) -> OmnigraphError:
    """Return the error of a note; for an unreadable note, an error that says so."""
    try:
        form = orjson.loads(note)
        kind = _KINDS[form["code"]]
        facts = {name: _checked(form["facts"][name]) for name in _facts(kind)}
        return kind(**facts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return EmbeddingResponseError(
            f"another task has failed to embed, and its note cannot be read ({error!r})"
        )


def _facts(kind: type[OmnigraphError]) -> list[str]:
    return list(kind.signature().parameters)


def _checked(value: object) -> object:
    """Return a plain value; lists become tuples, as errors hold them."""
    if isinstance(value, list):
        return tuple(str(each) for each in value)
    if isinstance(value, str | int):
        return value
    raise TypeError(f"expected text, a number or a list, found {type(value).__name__}")
