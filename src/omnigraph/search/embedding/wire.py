"""The requests and answers of embedding servers: two protocols, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import quote

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.search.embedding.config import EmbeddingConfig, Provider
from omnigraph.search.embedding.errors import EmbeddingResponseError

Role: TypeAlias = Literal["query", "document"]
Numbers: TypeAlias = list[Any]
"""A vector as a server sent it; not yet checked."""

_OPENAI_BATCH: Final = 128


@dataclass(frozen=True)
class WireRequest:
    """One POST."""

    url: str
    headers: dict[str, str]
    body: bytes
    texts: int
    """How many vectors the answer must hold."""


class Wire(Protocol):
    """The protocol of one kind of server."""

    @property
    def batch_max(self) -> int:
        """How many texts fit one request."""
        ...

    def request(self, texts: Sequence[str], *, dimension: int, role: Role) -> WireRequest:
        """Return the request for the vectors of at most `batch_max` texts."""
        ...

    def vectors(self, request: WireRequest, body: bytes) -> list[Numbers]:
        """Read an answer, in the order of the texts."""
        ...


def wire_for(config: EmbeddingConfig) -> Wire:
    """Return the protocol of a provider."""
    return GeminiWire(config) if config.provider is Provider.GEMINI else OpenAiWire(config)


@dataclass(frozen=True)
class OpenAiWire:
    """`POST {base}/embeddings`; the role makes no difference."""

    config: EmbeddingConfig
    batch_max: int = _OPENAI_BATCH

    def request(self, texts: Sequence[str], *, dimension: int, role: Role) -> WireRequest:  # noqa: ARG002 - the protocol knows no roles
        """Return the request for the vectors of some texts."""
        body = {"model": self.config.model, "input": list(texts), "dimensions": dimension}
        headers = {
            "Authorization": f"Bearer {self.config.api_key}",
            "Content-Type": "application/json",
        }
        url = f"{self.config.base_url}/embeddings"
        return WireRequest(url, headers, orjson.dumps(body), len(texts))

    def vectors(self, request: WireRequest, body: bytes) -> list[Numbers]:
        """Read an answer; its elements carry the index of their text."""
        items = _member(_decoded(body), "data")
        found: dict[object, object] = {}
        for item in items if isinstance(items, list) else []:
            found[_member(item, "index")] = _member(item, "embedding")
        vectors = []
        for number in range(request.texts):
            vector = found.get(number)
            if not isinstance(vector, list):
                raise EmbeddingResponseError(f"embedding response missing data[{number}]")
            vectors.append(vector)
        return vectors


@dataclass(frozen=True)
class GeminiWire:
    """`POST {base}/models/{model}:embedContent`, one text at a time."""

    config: EmbeddingConfig
    batch_max: int = 1

    def request(self, texts: Sequence[str], *, dimension: int, role: Role) -> WireRequest:
        """Return the request for the vector of one text."""
        model = self.config.model
        body = {
            "model": f"models/{model}",
            "content": {"parts": [{"text": text} for text in texts]},
            "taskType": "RETRIEVAL_QUERY" if role == "query" else "RETRIEVAL_DOCUMENT",
            "outputDimensionality": dimension,
        }
        headers = {"x-goog-api-key": self.config.api_key, "Content-Type": "application/json"}
        url = f"{self.config.base_url}/models/{quote(model)}:embedContent"
        return WireRequest(url, headers, orjson.dumps(body), len(texts))

    def vectors(self, request: WireRequest, body: bytes) -> list[Numbers]:  # noqa: ARG002 - one text, one vector
        """Read an answer."""
        values = _member(_member(_decoded(body), "embedding"), "values")
        if not isinstance(values, list):
            raise EmbeddingResponseError("embedding response missing embedding.values")
        return [values]


def error_message(body: bytes) -> str:
    """Return the error of a server: `error.message` of its answer, or all of it."""
    try:
        message = _member(_member(orjson.loads(body), "error"), "message")
    except orjson.JSONDecodeError:
        message = None
    return message if isinstance(message, str) else body.decode(errors="replace").strip()


def _decoded(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EmbeddingResponseError(f"embedding response is not JSON: {error}") from error


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None
