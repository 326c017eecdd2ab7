"""The embedding client against a real server on this machine."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from omnigraph.clock import Clock, SystemClock
from omnigraph.search.embedding import wire as embedding_wire
from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.config import EmbeddingConfig, Patience, Provider
from omnigraph.search.embedding.errors import (
    EmbeddingDeadlineError,
    EmbeddingModelMismatchError,
    EmbeddingRequestError,
    EmbeddingResponseError,
    EmbeddingUnreachableError,
    EmbeddingVectorError,
    LocalModelError,
)
from omnigraph.search.embedding.vectors import checked_vectors, mock_vectors
from support.clocks import ManualClock
from support.embedding_server import EmbeddingServer, embedding_server, vector

QUICK = Patience(timeout_ms=2_000, attempts=4, backoff_ms=1, deadline_ms=10_000)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


def client(
    server: EmbeddingServer,
    provider: Provider = Provider.OPENAI_COMPATIBLE,
    *,
    patience: Patience = QUICK,
    clock: Clock | None = None,
) -> EmbeddingClient:
    config = EmbeddingConfig(provider, "some/model", server.url, "secret-key", patience)
    return EmbeddingClient(config, clock or SystemClock())


def unit(values: list[float]) -> list[float]:
    array = np.array(values)
    return (array / np.linalg.norm(array)).astype(np.float32).tolist()


def test_openai_requests_look_as_specified(server: EmbeddingServer) -> None:
    found = client(server).embed(["one", "three"], dimension=4, role="query")
    (seen,) = server.seen
    assert seen.path == "/embeddings"
    assert seen.headers["authorization"] == "Bearer secret-key"
    assert seen.body == {"model": "some/model", "input": ["one", "three"], "dimensions": 4}
    np.testing.assert_allclose(found[0], unit(vector("one", 4)), rtol=1e-6)
    np.testing.assert_allclose(found[1], unit(vector("three", 4)), rtol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("role", "task"), [("query", "RETRIEVAL_QUERY"), ("document", "RETRIEVAL_DOCUMENT")]
)
def test_gemini_requests_look_as_specified(
    server: EmbeddingServer, role: embedding_wire.Role, task: str
) -> None:
    found = client(server, Provider.GEMINI).embed(["one"], dimension=3, role=role)
    (seen,) = server.seen
    assert seen.path == "/models/some/model:embedContent"
    assert seen.headers["x-goog-api-key"] == "secret-key"
    assert seen.body == {
        "model": "models/some/model",
        "content": {"parts": [{"text": "one"}]},
        "taskType": task,
        "outputDimensionality": 3,
    }
    np.testing.assert_allclose(found[0], unit(vector("one", 3)), rtol=1e-6)


@pytest.mark.parametrize("provider", [Provider.OPENAI, Provider.GEMINI])
def test_many_texts_keep_their_order(server: EmbeddingServer, provider: Provider) -> None:
    texts = ["x" * (number % 37) for number in range(300 if provider is Provider.OPENAI else 20)]
    found = client(server, provider).embed(texts, dimension=2, role="document")
    expected = [unit(vector(text, 2)) for text in texts]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    sent = [len(seen.body.get("input", [1])) for seen in server.seen]
    assert sum(sent) == len(texts)
    assert max(sent) <= 128


def test_no_text_needs_no_request(server: EmbeddingServer) -> None:
    assert client(server).embed([], dimension=3, role="query").shape == (0, 3)
    assert server.seen == []


def test_a_query_is_sent_once(server: EmbeddingServer) -> None:
    one = client(server)
    first = one.embed_query("same", dimension=3)
    assert one.embed_query("same", dimension=3) is first
    assert len(server.seen) == 1
    one.embed_query("same", dimension=4)
    assert len(server.seen) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(server: EmbeddingServer, status: int) -> None:
    server.reply((status, b"busy"), (status, b"busy"))
    assert len(client(server).embed(["a"], dimension=2, role="query")) == 1
    assert len(server.seen) == 3


def test_attempts_are_bounded_and_the_last_answer_is_reported(server: EmbeddingServer) -> None:
    body = json.dumps({"error": {"message": "slow down"}}).encode()
    server.reply(*[(429, body)] * 10)
    with pytest.raises(EmbeddingRequestError) as caught:
        client(server).embed(["a"], dimension=2, role="query")
    assert str(caught.value) == "embedding request failed with status 429: slow down"
    assert caught.value.status == 429
    assert len(server.seen) == 4


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_other_statuses_are_not_tried_again(server: EmbeddingServer, status: int) -> None:
    server.reply((status, b"plain words", {"Location": f"{server.url}/elsewhere"}))
    with pytest.raises(
        EmbeddingRequestError, match=f"^embedding request failed with status {status}: plain words"
    ):
        client(server).embed(["a"], dimension=2, role="query")
    assert len(server.seen) == 1


def test_delays_double(server: EmbeddingServer) -> None:
    clock = ManualClock()
    slept: list[float] = []
    clock.sleep = slept.append  # type: ignore[method-assign] # the test watches the waiting
    server.reply(*[(500, b"")] * 10)
    patience = Patience(attempts=5, backoff_ms=200)
    with pytest.raises(EmbeddingRequestError):
        client(server, patience=patience, clock=clock).embed(["a"], dimension=2, role="query")
    factor = clock.jitter(1.0, 1.25)
    assert slept == pytest.approx([0.2 * factor, 0.4 * factor, 0.8 * factor, 1.6 * factor])


def test_a_server_may_ask_for_a_longer_wait(server: EmbeddingServer) -> None:
    clock = ManualClock()
    slept: list[float] = []
    clock.sleep = slept.append  # type: ignore[method-assign] # the test watches the waiting
    server.reply((429, b"", {"Retry-After": "7"}))
    client(server, clock=clock).embed(["a"], dimension=2, role="query")
    assert slept == [7.0]


def test_a_hanging_request_is_given_up_and_tried_again(server: EmbeddingServer) -> None:
    server.hang()
    patience = Patience(timeout_ms=1_000, attempts=2, backoff_ms=1)
    found = client(server, patience=patience).embed(["a"], dimension=2, role="query")
    assert len(found) == 1
    assert len(server.seen) == 2


def test_a_request_that_always_hangs_says_so(server: EmbeddingServer) -> None:
    server.hang()
    server.hang()
    patience = Patience(timeout_ms=50, attempts=2, backoff_ms=1)
    with pytest.raises(EmbeddingUnreachableError, match="no answer within 50 ms"):
        client(server, patience=patience).embed(["a"], dimension=2, role="query")


def test_an_answer_that_trickles_in_is_cut_off_at_the_deadline(server: EmbeddingServer) -> None:
    server.slow_bytes_s = 0.2
    patience = Patience(timeout_ms=5_000, attempts=4, backoff_ms=1, deadline_ms=200)
    begin = time.monotonic()
    with pytest.raises(EmbeddingDeadlineError) as caught:
        client(server, patience=patience).embed(["a"], dimension=64, role="query")
    assert time.monotonic() - begin < 60  # the whole answer takes minutes
    assert str(caught.value) == (
        "embedding deadline exceeded after 200 ms (provider=openai-compatible, model=some/model)"
    )


def test_waiting_past_the_deadline_is_not_begun(server: EmbeddingServer) -> None:
    server.reply((500, b""))
    patience = Patience(attempts=4, backoff_ms=60_000, deadline_ms=1_000)
    with pytest.raises(EmbeddingDeadlineError):
        client(server, patience=patience).embed(["a"], dimension=2, role="query")
    assert len(server.seen) == 1


def test_a_refused_connection_is_a_typed_error() -> None:
    gone = EmbeddingServer(url="http://127.0.0.1:1")
    with pytest.raises(EmbeddingUnreachableError, match=re.escape(gone.url)):
        client(gone).embed(["a"], dimension=2, role="query")


def test_a_url_of_another_scheme_is_not_opened(tmp_path: Path) -> None:
    odd = EmbeddingServer(url=tmp_path.as_uri())
    with pytest.raises(EmbeddingUnreachableError, match="http:// or https://"):
        client(odd).embed(["a"], dimension=2, role="query")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "embedding response is not JSON"),
        (b"{}", r"embedding response missing data\[0\]"),
        (b"[]", r"embedding response missing data\[0\]"),
        (b'{"data": [{"index": 1, "embedding": [1, 2]}]}', r"missing data\[0\]"),
        (b'{"data": [{"index": 0, "embedding": "abc"}]}', r"missing data\[0\]"),
    ],
)
def test_an_answer_that_cannot_be_read_is_not_tried_again(
    server: EmbeddingServer, body: bytes, message: str
) -> None:
    server.reply((200, body))
    with pytest.raises(EmbeddingResponseError, match=message):
        client(server).embed(["a"], dimension=2, role="query")
    assert len(server.seen) == 1


def test_gemini_without_values_is_refused(server: EmbeddingServer) -> None:
    server.reply((200, b'{"embedding": {}}'))
    with pytest.raises(EmbeddingResponseError, match=r"embedding\.values"):
        client(server, Provider.GEMINI).embed(["a"], dimension=2, role="query")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], "embedding dimension mismatch: expected 2, got 1"),
        ([1.0, 2.0, 3.0], "embedding dimension mismatch: expected 2, got 3"),
        ([1.0, 1e300], "embedding component 1 is not finite (inf)"),
        ([0.0, 0.0], "embedding has zero norm (no direction)"),
        ([1e-30, 0.0], "embedding has zero norm (no direction)"),
        ([1.0, None], "embedding component 1 is not a number (None)"),
        (["1", 2.0], "embedding component 0 is not a number ('1')"),
    ],
)
def test_a_bad_vector_is_refused_at_once(
    server: EmbeddingServer, values: list[object], message: str
) -> None:
    server.reply((200, json.dumps({"data": [{"index": 0, "embedding": values}]}).encode()))
    with pytest.raises(EmbeddingVectorError) as caught:
        client(server).embed(["a"], dimension=2, role="query")
    assert str(caught.value) == message
    assert len(server.seen) == 1


def test_not_a_number_in_an_array_is_refused() -> None:
    with pytest.raises(EmbeddingVectorError, match=r"component 1 is not finite \(nan\)"):
        checked_vectors(np.array([[1.0, np.nan]], np.float32), 2)


def test_one_failure_ends_a_call_of_many(server: EmbeddingServer) -> None:
    server.reply((400, b"no"))
    with pytest.raises(EmbeddingRequestError):
        client(server, Provider.GEMINI).embed(["t"] * 12, dimension=2, role="document")


def test_a_client_serves_many_threads(server: EmbeddingServer) -> None:
    one = client(server)
    wrong: list[str] = []

    def work(text: str) -> None:
        for _ in range(5):
            found = one.embed([text], dimension=2, role="query")[0]
            if not np.allclose(found, unit(vector(text, 2))):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=("x" * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_are_logged_without_the_key(
    server: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.reply((500, b""))
    with caplog.at_level(logging.INFO, "omnigraph::embedding"):
        client(server).embed(["a"], dimension=2, role="query")
    assert "provider=openai-compatible model=some/model attempt=2" in caplog.text
    assert "dim=2" in caplog.text
    assert "outcome=ok" in caplog.text
    assert "secret-key" not in caplog.text


def test_errors_carry_no_key(server: EmbeddingServer) -> None:
    server.reply((401, b"who are you"))
    with pytest.raises(EmbeddingRequestError) as caught:
        client(server).embed(["a"], dimension=2, role="query")
    assert "secret-key" not in f"{caught.value!r} {vars(caught.value)}"


def test_another_model_is_refused_before_any_request(server: EmbeddingServer) -> None:
    one = client(server)
    one.require_model("Note.vec", None)
    one.require_model("Note.vec", "some/model")
    with pytest.raises(EmbeddingModelMismatchError) as caught:
        one.require_model("Note.vec", "model")
    for part in ("Note.vec", "'model'", "'some/model'"):
        assert part in str(caught.value)
    assert "OMNIGRAPH_EMBED_MODEL" in str(caught.value.hint)
    assert server.seen == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha", [-0.54204881, -0.47179943, 0.16090508, 0.67653376]),
        ("beta", [0.66596329, -0.56221950, -0.41636753, 0.25892115]),
        ("", [-0.43294001, -0.76426148, -0.32645237, 0.34913632]),
    ],
)
def test_mock_vectors_are_the_specified_ones(text: str, expected: list[float]) -> None:
    config = EmbeddingConfig(Provider.MOCK)
    found = EmbeddingClient(config, SystemClock()).embed_query(text, dimension=4)
    np.testing.assert_allclose(found, np.array(expected, np.float32), rtol=0, atol=1e-7)


def test_mock_vectors_are_of_unit_length_and_independent_of_their_neighbours() -> None:
    together = mock_vectors(["a", "b", "ä"], 300)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert np.array_equal(together[1], mock_vectors(["b"], 300)[0])


LOCAL_PACKAGE = """
import numpy

class SentenceTransformer:
    def __init__(self, name, *, device, local_files_only):
        if not local_files_only or device != "cpu":
            raise AssertionError("must stay on this machine")
        if name == "absent":
            raise OSError("no such model on disk")

    def encode(self, texts, *, convert_to_numpy, show_progress_bar):
        return numpy.array([[len(text) + 1.0, 2.0] for text in texts], dtype="float32")
"""


@pytest.fixture
def local_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sentence_transformers.py").write_text(LOCAL_PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)


@pytest.mark.usefixtures("local_package")
def test_a_local_model_is_loaded_from_disk_alone() -> None:
    one = EmbeddingClient(EmbeddingConfig(Provider.LOCAL, "here"), SystemClock())
    found = one.embed(["", "abc"], dimension=2, role="document")
    np.testing.assert_allclose(found, [unit([1, 2]), unit([4, 2])], rtol=1e-6)
    with pytest.raises(EmbeddingVectorError, match="expected 5, got 2"):
        one.embed(["a"], dimension=5, role="document")


@pytest.mark.usefixtures("local_package")
def test_a_local_model_that_is_not_there_is_a_typed_error() -> None:
    one = EmbeddingClient(EmbeddingConfig(Provider.LOCAL, "absent"), SystemClock())
    with pytest.raises(LocalModelError, match="no such model on disk"):
        one.embed(["a"], dimension=2, role="query")


def test_a_missing_local_package_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    one = EmbeddingClient(EmbeddingConfig(Provider.LOCAL, "here"), SystemClock())
    with pytest.raises(LocalModelError) as caught:
        one.embed(["a"], dimension=2, role="query")
    assert "pip install" in str(caught.value.hint)
