"""Providers of vectors for tests: none, or a server that counts what it is asked.

The `conftest.py` of a room imports the fixtures that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.graph import Graph
from support.embedding_server import EmbeddingServer, embedding_server

_VARIABLES = (
    *("OMNIGRAPH_EMBED_PROVIDER", "OMNIGRAPH_EMBED_MODEL", "OMNIGRAPH_EMBED_BASE_URL"),
    *("OMNIGRAPH_EMBEDDINGS_MOCK", "OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
)


@pytest.fixture
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the provider of whoever runs the tests."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(no_provider: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """A provider that counts what it is asked."""
    with embedding_server() as running:
        monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "1")
        yield running


def sent(server: EmbeddingServer) -> list[str]:
    """Return all texts that the server was asked for, in order."""
    return [text for request in server.seen for text in request.body["input"]]


def vectors(graph: Graph, type_name: str = "Note") -> dict[str, list[float] | None]:
    """Return the vectors `vec` of the nodes of a type, by `key`."""
    text = f"query q() {{ match {{ $n: {type_name} }} return {{ $n.key as key, $n.vec as vec }} }}"
    return {row["key"]: row["vec"] for row in graph.query(text).json_rows()}
