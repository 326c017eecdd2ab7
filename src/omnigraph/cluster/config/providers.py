"""Embedding providers: the kinds that there are, and keys that stay out of the file."""

from __future__ import annotations

import re
from typing import Final, cast, get_args
from urllib.parse import urlsplit

from omnigraph.cluster.config.model import ProviderConfig
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.desired import EmbeddingProfile, ProviderKind
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.strict_yaml import quoted

PROVIDER_KINDS: Final[tuple[str, ...]] = get_args(ProviderKind)
KEY_REFERENCE: Final = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_KEY_REFERENCE: Final = re.compile(KEY_REFERENCE)
_INVALID: Final = "invalid_embedding_provider"


def load_provider(
    name: str, config: ProviderConfig
) -> tuple[EmbeddingProfile | None, list[Diagnostic]]:
    """Return the profile of a provider, or none and what is wrong with it."""
    path = below("providers.embedding", name)
    kind = config.kind or EmbeddingProfile.kind
    found = [*_kind_problems(kind, path), *_url_problems(config.base_url, path)]
    found += _key_problems(kind, config.api_key, f"{path}.api_key")
    if found:
        return None, found
    return (
        EmbeddingProfile(
            kind=cast("ProviderKind", kind),
            base_url=config.base_url,
            model=config.model,
            api_key=config.api_key,
        ),
        [],
    )


def _kind_problems(kind: str, path: str) -> list[Diagnostic]:
    if kind in PROVIDER_KINDS:
        return []
    message = f"unknown kind {quoted(kind)}; expected {', '.join(PROVIDER_KINDS)}"
    return [error(_INVALID, f"{path}.kind", message)]


def _url_problems(base_url: str | None, path: str) -> list[Diagnostic]:
    if base_url is None or not base_url.strip():
        return []
    try:
        parts = urlsplit(base_url.strip())
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc:
        return []
    # The URL may hold a password, so the message does not repeat it.
    message = "expected a URL with http:// or https://, a host and no user"
    return [error(_INVALID, f"{path}.base_url", message)]


def _key_problems(kind: str, api_key: str | None, path: str) -> list[Diagnostic]:
    """Return what is wrong with a key; the message never shows what was written."""
    if api_key is None:
        if kind == "mock" or kind not in PROVIDER_KINDS:
            return []
        message = "the provider needs a key; write `${NAME}`, the name of an environment variable"
        return [error("embedding_api_key_required", path, message)]
    if _KEY_REFERENCE.fullmatch(api_key):
        return []
    message = "keys do not belong into this file; write `${NAME}`, an environment variable"
    return [error("embedding_api_key_inline", path, message)]
