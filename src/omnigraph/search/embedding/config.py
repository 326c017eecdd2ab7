"""Which provider turns text into vectors, with which timeouts and retries.

| `OMNIGRAPH_EMBED_PROVIDER` | default model | key variables, in order |
|---|---|---|
| `openai-compatible` or unset | `openai/text-embedding-3-large` | `OPENROUTER_API_KEY`, next one |
| `openai` | `text-embedding-3-large` | `OPENAI_API_KEY` |
| `gemini` | `gemini-embedding-2` | `GEMINI_API_KEY` |
| `mock` | the value of `OMNIGRAPH_EMBED_MODEL`, or empty | none |
| `local` | `sentence-transformers/all-MiniLM-L6-v2` | none |

In Python a function of the caller can be the provider: `EmbeddingConfig.of_function`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.search.embedding.errors import (
    EmbeddingFunctionError,
    EmbeddingKeyMissingError,
    UnknownEmbeddingProviderError,
)

log = logging.getLogger("omnigraph::embedding")
"""The logger of everything about embedding; it never gets a key."""

EmbeddingFunction: TypeAlias = Callable[[list[str]], Sequence[Sequence[float]] | Any]
"""Returns a vector for each text: lists of numbers, or an array of two dimensions."""

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class Provider(StrEnum):
    """The provider of the vectors."""

    OPENAI_COMPATIBLE = "openai-compatible"
    OPENAI = "openai"
    GEMINI = "gemini"
    MOCK = "mock"
    LOCAL = "local"
    FUNCTION = "function"
    """A function of the caller, in Python only."""


@dataclass(frozen=True)
class _Defaults:
    base_url: str = ""
    model: str = ""
    keys: tuple[str, ...] = ()


_DEFAULTS: Final = {
    Provider.OPENAI_COMPATIBLE: _Defaults(
        "https://openrouter.ai/api/v1",
        "openai/text-embedding-3-large",
        ("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    ),
    Provider.OPENAI: _Defaults(
        "https://api.openai.com/v1", "text-embedding-3-large", ("OPENAI_API_KEY",)
    ),
    Provider.GEMINI: _Defaults(
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini-embedding-2",
        ("GEMINI_API_KEY",),
    ),
    Provider.MOCK: _Defaults(),
    Provider.LOCAL: _Defaults(model="sentence-transformers/all-MiniLM-L6-v2"),
}


@dataclass(frozen=True)
class Patience:
    """How long to wait and how often to try."""

    timeout_ms: int = 30_000
    """One HTTP request."""
    attempts: int = 4
    """In total, the first one included."""
    backoff_ms: int = 200
    """Before the second attempt; doubles each time."""
    deadline_ms: int = 60_000
    """One request with all its attempts; 0 is no limit."""


@dataclass(frozen=True)
class EmbeddingConfig:
    """Everything that an embedding client needs."""

    provider: Provider
    model: str = ""
    # An address may hold a password or a token.
    base_url: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    patience: Patience = Patience()
    function: EmbeddingFunction | None = field(default=None, repr=False)

    @classmethod
    def of_function(
        cls, function: EmbeddingFunction, *, model: str | None = None
    ) -> EmbeddingConfig:
        """Return the configuration whose vectors come from a function.

        `model` names what makes the vectors and is stored with them; by default the name of the
        function. Give it another name when the function begins to make other vectors.
        """
        return cls(Provider.FUNCTION, model or _qualified_name(function), function=function)


def embedding_config(given: EmbeddingConfig | EmbeddingFunction | None) -> EmbeddingConfig | None:
    """Return what a caller gave as a configuration."""
    if given is None or isinstance(given, EmbeddingConfig):
        return given
    return EmbeddingConfig.of_function(given)


def _qualified_name(function: EmbeddingFunction) -> str:
    """Return the name of a function; one that others share would say nothing of its vectors."""
    if not callable(function):
        raise EmbeddingFunctionError(repr(function), "it is no function")
    name = getattr(function, "__qualname__", None)
    if name is None or name.endswith("<lambda>"):
        raise EmbeddingFunctionError(repr(function), "it has no name of its own")
    return f"{function.__module__}.{name}"


def config_from_environment(environ: Mapping[str, str]) -> EmbeddingConfig:
    """Read the configuration from environment variables."""
    named = _value(environ, "OMNIGRAPH_EMBED_PROVIDER")
    if _value(environ, "OMNIGRAPH_EMBEDDINGS_MOCK").lower() in _TRUE:
        if named not in ("", Provider.MOCK):
            log.warning("OMNIGRAPH_EMBEDDINGS_MOCK overrides the provider '%s'", named)
        named = Provider.MOCK
    provider = _provider(named or Provider.OPENAI_COMPATIBLE)
    keys = _DEFAULTS[provider].keys
    return _resolved(
        provider,
        base_url=_value(environ, "OMNIGRAPH_EMBED_BASE_URL"),
        model=_value(environ, "OMNIGRAPH_EMBED_MODEL"),
        api_key=next(filter(None, (_value(environ, key) for key in keys)), ""),
        patience=patience_from_environment(environ),
    )


def config_of_profile(
    *,
    provider: str,
    base_url: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    environ: Mapping[str, str],
) -> EmbeddingConfig:
    """Return the configuration of a declared provider; timeouts come from the environment.

    `api_key` is a reference, `${NAME}`, to a variable of the environment.
    """
    name = (api_key or "").removeprefix("${").removesuffix("}")
    chosen = _provider(provider)
    key = _value(environ, name) if name else ""
    if _DEFAULTS[chosen].keys and not key:
        raise EmbeddingKeyMissingError(chosen.value, (name,) if name else _DEFAULTS[chosen].keys)
    return _resolved(
        chosen,
        base_url=(base_url or "").strip(),
        model=(model or "").strip(),
        api_key=key,
        patience=patience_from_environment(environ),
    )


def names_provider(environ: Mapping[str, str]) -> bool:
    """Return whether environment variables choose a provider instead of the default."""
    is_mocked = _value(environ, "OMNIGRAPH_EMBEDDINGS_MOCK").lower() in _TRUE
    return is_mocked or bool(_value(environ, "OMNIGRAPH_EMBED_PROVIDER"))


def patience_from_environment(environ: Mapping[str, str]) -> Patience:
    """Read timeouts and retries; an invalid value means the default."""
    usual = Patience()
    deadline = _number(environ, "OMNIGRAPH_EMBED_DEADLINE_MS")
    return Patience(
        timeout_ms=_number(environ, "OMNIGRAPH_EMBED_TIMEOUT_MS") or usual.timeout_ms,
        attempts=_number(environ, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS") or usual.attempts,
        backoff_ms=_number(environ, "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS") or usual.backoff_ms,
        deadline_ms=usual.deadline_ms if deadline is None else deadline,
    )


def _resolved(
    provider: Provider, *, base_url: str, model: str, api_key: str, patience: Patience
) -> EmbeddingConfig:
    usual = _DEFAULTS[provider]
    if usual.keys and not api_key:
        raise EmbeddingKeyMissingError(provider.value, usual.keys)
    return EmbeddingConfig(
        provider,
        model or usual.model,
        (base_url or usual.base_url).removesuffix("/") if usual.base_url else "",
        api_key if usual.keys else "",
        patience,
    )


def _provider(name: str) -> Provider:
    known = tuple(_DEFAULTS)
    if name not in known:
        raise UnknownEmbeddingProviderError(name, tuple(provider.value for provider in known))
    return Provider(name)


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = _value(environ, name)
    return int(text) if text.isdecimal() and text.isascii() else None
