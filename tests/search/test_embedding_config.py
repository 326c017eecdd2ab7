"""Which provider is chosen from which variables."""

from __future__ import annotations

import logging
import pickle

import pytest

from omnigraph.clock import SystemClock
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.embedding.config import (
    Patience,
    Provider,
    config_from_environment,
    patience_from_environment,
)
from omnigraph.search.embedding.errors import (
    EmbeddingKeyMissingError,
    UnknownEmbeddingProviderError,
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"OPENROUTER_API_KEY": "a", "OPENAI_API_KEY": "b"},
            (
                "openai-compatible",
                "openai/text-embedding-3-large",
                "https://openrouter.ai/api/v1",
                "a",
            ),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": " openai-compatible ", "OPENAI_API_KEY": " b "},
            (
                "openai-compatible",
                "openai/text-embedding-3-large",
                "https://openrouter.ai/api/v1",
                "b",
            ),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "openai", "OPENAI_API_KEY": "b"},
            ("openai", "text-embedding-3-large", "https://api.openai.com/v1", "b"),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": "g"},
            (
                "gemini",
                "gemini-embedding-2",
                "https://generativelanguage.googleapis.com/v1beta",
                "g",
            ),
        ),
        (
            {
                "OPENAI_API_KEY": "b",
                "OMNIGRAPH_EMBED_BASE_URL": "http://here/v1/",
                "OMNIGRAPH_EMBED_MODEL": " mine ",
            },
            ("openai-compatible", "mine", "http://here/v1", "b"),
        ),
        ({"OMNIGRAPH_EMBED_PROVIDER": "mock", "OPENAI_API_KEY": "b"}, ("mock", "", "", "")),
        ({"OMNIGRAPH_EMBEDDINGS_MOCK": "YES", "OMNIGRAPH_EMBED_MODEL": "m"}, ("mock", "m", "", "")),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "local"},
            ("local", "sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ),
    ],
)
def test_the_environment_decides(environ: dict[str, str], expected: tuple[str, ...]) -> None:
    config = config_from_environment(environ)
    assert (config.provider.value, config.model, config.base_url, config.api_key) == expected


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownEmbeddingProviderError) as caught:
        config_from_environment({"OMNIGRAPH_EMBED_PROVIDER": "oracle"})
    assert str(caught.value) == (
        "unknown embedding provider 'oracle' (expected openai-compatible|openai|gemini|mock|local)"
    )


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (
            "",
            (
                "OPENROUTER_API_KEY or OPENAI_API_KEY is required"
                " for the openai-compatible embedding provider"
            ),
        ),
        ("openai", "OPENAI_API_KEY is required for the openai embedding provider"),
        ("gemini", "GEMINI_API_KEY is required for the gemini embedding provider"),
    ],
)
def test_a_missing_key_names_its_variables(provider: str, message: str) -> None:
    environ = {"OMNIGRAPH_EMBED_PROVIDER": provider, "OPENROUTER_API_KEY": "  "}
    with pytest.raises(EmbeddingKeyMissingError) as caught:
        config_from_environment(environ)
    assert str(caught.value) == message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


@pytest.mark.parametrize("value", ["1", "true", "Yes", "ON"])
def test_the_mock_switch_wins_and_warns(value: str, caplog: pytest.LogCaptureFixture) -> None:
    environ = {"OMNIGRAPH_EMBEDDINGS_MOCK": value, "OMNIGRAPH_EMBED_PROVIDER": "openai"}
    with caplog.at_level(logging.WARNING, "omnigraph::embedding"):
        assert config_from_environment(environ).provider is Provider.MOCK
    assert "openai" in caplog.text


@pytest.mark.parametrize("value", ["0", "off", "no", ""])
def test_other_values_leave_the_mock_switch_off(value: str) -> None:
    with pytest.raises(EmbeddingKeyMissingError):
        config_from_environment({"OMNIGRAPH_EMBEDDINGS_MOCK": value})


def test_patience_is_read_and_nonsense_is_the_default() -> None:
    names = ("TIMEOUT_MS", "RETRY_ATTEMPTS", "RETRY_BACKOFF_MS", "DEADLINE_MS")
    variables = [f"OMNIGRAPH_EMBED_{name}" for name in names]
    given = dict(zip(variables, ("5", "6", "7", "8"), strict=True))
    assert patience_from_environment(given) == Patience(5, 6, 7, 8)
    for nonsense in ("", "soon", "-1", "1.5", "²"):
        assert patience_from_environment(dict.fromkeys(variables, nonsense)) == Patience()
    assert patience_from_environment(dict.fromkeys(variables, "0")) == Patience(deadline_ms=0)


def test_a_key_is_in_no_representation() -> None:
    config = config_from_environment({"OPENAI_API_KEY": "very-secret"})
    assert "very-secret" not in repr(config)


def test_a_graph_that_never_embeds_needs_no_key() -> None:
    lazy = LazyEmbeddingClient(SystemClock(), environ={})
    with pytest.raises(EmbeddingKeyMissingError):
        lazy.get()
    mocked = LazyEmbeddingClient(SystemClock(), environ={"OMNIGRAPH_EMBEDDINGS_MOCK": "1"})
    assert mocked.get() is mocked.get()
