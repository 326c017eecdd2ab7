"""The embedding client: text in, unit vectors of a given dimension out.

1. A returned vector is finite, has the requested dimension and unit length.
2. One request, with all its attempts, ends within the deadline; a request that is late is
   cancelled. Only a missing answer, 429 and 5xx are retried.
3. Vectors have the order of their texts. Large sets are sent in batches, some in parallel; the
   first failure ends the call.
4. Keys are in no message and in no log record.
5. Nothing is imported, opened or requested before the first text.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from omnigraph.cache import BoundedCache
from omnigraph.clock import Clock
from omnigraph.search.embedding.config import (
    EmbeddingConfig,
    EmbeddingFunction,
    Patience,
    Provider,
    config_from_environment,
    log,
    names_provider,
)
from omnigraph.search.embedding.errors import (
    EmbeddingDeadlineError,
    EmbeddingFunctionError,
    EmbeddingModelMismatchError,
    EmbeddingRequestError,
    EmbeddingUnreachableError,
    LocalModelError,
)
from omnigraph.search.embedding.vectors import Vectors, checked_vectors, mock_vectors
from omnigraph.search.embedding.wire import (
    Role,
    Wire,
    WireRequest,
    error_message,
    wire_for,
)
from omnigraph.search.late import provider_http
from omnigraph.texts import shown

_PARALLEL_MAX: Final = 4
_DOUBLINGS_MAX: Final = 10
_JITTER_MAX: Final = 1.25
"""Jitter: waits are up to a quarter longer, so that clients do not retry all at once."""
_QUERIES_MAX: Final = 256
_TOO_MANY_REQUESTS: Final = 429

_Outcome: TypeAlias = "provider_http.Answer | provider_http.NoAnswerError"


class EmbeddingClient:
    """Turns text into vectors. Safe to share between threads.

    ```python
    client = EmbeddingClient(config_from_environment(os.environ), clock)
    vectors = client.embed(["a text"], dimension=256, role="document")
    ```
    """

    def __init__(self, config: EmbeddingConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._source = _source(config, clock)
        self._queries: BoundedCache[Vectors] = BoundedCache(_QUERIES_MAX)

    @property
    def model(self) -> str:
        """The model that vectors come from."""
        return self.config.model

    def require_model(self, property_name: str, recorded: str | None) -> None:
        """Raise unless texts may be compared with a property's vectors; sends no request."""
        if recorded is not None and recorded != self.model:
            raise EmbeddingModelMismatchError(property_name, recorded=recorded, resolved=self.model)

    def require_one_of(self, property_name: str, models: frozenset[str]) -> None:
        """Raise where all recorded vectors of a property come from other models."""
        if models and self.model not in models:
            found = ", ".join(sorted(models))
            raise EmbeddingModelMismatchError(property_name, recorded=found, resolved=self.model)

    def embed(self, texts: Sequence[str], *, dimension: int, role: Role) -> Vectors:
        """Return one unit vector of length `dimension` per text."""
        if not texts:
            return np.empty((0, dimension), np.float32)
        begin = self._clock.monotonic_s()
        outcome = "failed"
        try:
            vectors = self._source.vectors(texts, dimension=dimension, role=role)
            outcome = "ok"
            return vectors
        finally:
            log.info(
                "provider=%s model=%s dim=%d texts=%d elapsed_ms=%.0f outcome=%s",
                *(self.config.provider.value, self.model, dimension, len(texts)),
                (self._clock.monotonic_s() - begin) * 1000,
                outcome,
            )

    def embed_query(self, text: str, *, dimension: int) -> Vectors:
        """Return the vector of one query text; the last few are cached."""
        known = self._queries.get((text, dimension))
        if known is not None:
            return known
        vector: Vectors = self.embed([text], dimension=dimension, role="query")[0]
        vector.flags.writeable = False
        self._queries.put((text, dimension), vector, 1)
        return vector


class LazyEmbeddingClient:
    """Makes a graph's client when it is first needed: a graph that never embeds needs no key."""

    def __init__(
        self,
        clock: Clock,
        *,
        config: EmbeddingConfig | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self._config = config
        self._environ = environ
        self._guard = threading.Lock()
        self._client: EmbeddingClient | None = None

    @property
    def is_configured(self) -> bool:
        """Whether a provider is configured; a key alone is not enough."""
        return self._config is not None or names_provider(self._environ or {})

    def get(self) -> EmbeddingClient:
        """Return the client; raises when it is not configured, or wrongly."""
        # The environment may change while the graph is open: a client of other settings than the
        # present ones would make vectors that were not asked for.
        config = self._config or config_from_environment(self._environ or {})
        with self._guard:
            if self._client is None or self._client.config != config:
                self._client = EmbeddingClient(config, self._clock)
            return self._client


class _Source(Protocol):
    def vectors(self, texts: Sequence[str], *, dimension: int, role: Role) -> Vectors: ...


def _source(config: EmbeddingConfig, clock: Clock) -> _Source:
    if config.provider is Provider.MOCK:
        return _MockSource()
    if config.provider is Provider.LOCAL:
        return _LocalSource(config.model)
    if config.function is not None:
        return _FunctionSource(config.function, config.model)
    return _ServerSource(config, wire_for(config), clock)


class _MockSource:
    def vectors(self, texts: Sequence[str], *, dimension: int, role: Role) -> Vectors:  # noqa: ARG002 - roles make no difference
        return mock_vectors(texts, dimension)


class _FunctionSource:
    """A function of the caller; it is called by one thread at a time."""

    def __init__(self, function: EmbeddingFunction, name: str) -> None:
        self._function = function
        self._name = name
        self._guard = threading.Lock()

    def vectors(self, texts: Sequence[str], *, dimension: int, role: Role) -> Vectors:  # noqa: ARG002 - one function for both
        with self._guard:
            found = self._function(list(texts))
        try:
            made = np.asarray(found, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise EmbeddingFunctionError(self._name, str(error)) from error
        if made.shape != (len(texts), dimension):
            shape = " by ".join(map(str, made.shape))
            raise EmbeddingFunctionError(
                self._name, f"it returned {shape} numbers instead of {len(texts)} by {dimension}"
            )
        return checked_vectors(made, dimension)


class _LocalSource:
    """A sentence-embedding model on this machine's processor, without any network."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._model: Any = None

    def vectors(self, texts: Sequence[str], *, dimension: int, role: Role) -> Vectors:  # noqa: ARG002 - one model for both
        with self._guard:
            if self._model is None:
                self._model = self._load()
            found = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return checked_vectors(np.asarray(found, dtype=np.float32), dimension)

    def _load(self) -> Any:
        try:
            # Optional and slow to import: loaded at the first text.
            package = importlib.import_module("sentence_transformers")
        except ImportError as error:
            raise LocalModelError(self._name, "sentence-transformers is not installed") from error
        try:
            return package.SentenceTransformer(self._name, device="cpu", local_files_only=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise LocalModelError(self._name, str(error)) from error


class _ServerSource:
    def __init__(self, config: EmbeddingConfig, wire: Wire, clock: Clock) -> None:
        self._config = config
        self._wire = wire
        self._clock = clock

    def vectors(self, texts: Sequence[str], *, dimension: int, role: Role) -> Vectors:
        size = self._wire.batch_max
        requests = [
            self._wire.request(texts[first : first + size], dimension=dimension, role=role)
            for first in range(0, len(texts), size)
        ]
        if len(requests) == 1:
            return self._answered(requests[0], dimension)
        with ThreadPoolExecutor(min(len(requests), _PARALLEL_MAX)) as pool:
            pending = [pool.submit(self._answered, request, dimension) for request in requests]
            try:
                return np.concatenate([future.result() for future in pending])
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _answered(self, request: WireRequest, dimension: int) -> Vectors:
        answer = _Attempts(self._config, self._clock).run(request)
        return checked_vectors(self._wire.vectors(request, answer.body), dimension)


class _Attempts:
    """One request with its retries, until it is answered, fails, or is late."""

    def __init__(self, config: EmbeddingConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._begin = clock.monotonic_s()

    @property
    def _patience(self) -> Patience:
        return self._config.patience

    def run(self, request: WireRequest) -> provider_http.Answer:
        attempt = 1
        while True:
            outcome = self._once(request)
            if isinstance(outcome, provider_http.Answer) and 200 <= outcome.status < 300:
                return outcome
            if attempt >= self._patience.attempts or not _may_retry(outcome):
                raise _failure(request, outcome)
            self._wait(attempt, outcome)
            attempt += 1
            log.warning(
                "provider=%s model=%s attempt=%d after: %s",
                *(self._config.provider.value, self._config.model, attempt),
                _summary(outcome),
            )

    def _once(self, request: WireRequest) -> _Outcome:
        limit_s = min(self._patience.timeout_ms / 1000, self._left_s())
        if limit_s <= 0:
            raise self._late()
        try:
            return provider_http.post(
                request.url, headers=request.headers, body=request.body, limit_s=limit_s
            )
        except provider_http.NoAnswerError as error:
            if error.timed_out and self._left_s() <= 0:
                raise self._late() from error
            return error

    def _wait(self, attempt: int, outcome: _Outcome) -> None:
        delay_s = self._patience.backoff_ms / 1000 * 2 ** min(attempt - 1, _DOUBLINGS_MAX)
        delay_s *= self._clock.jitter(1.0, _JITTER_MAX)
        if isinstance(outcome, provider_http.Answer):
            delay_s = max(delay_s, outcome.retry_after_s)
        if delay_s >= self._left_s():
            # The next attempt could not begin before the deadline: raise now.
            raise self._late()
        self._clock.sleep(delay_s)

    def _left_s(self) -> float:
        if not self._patience.deadline_ms:
            return float("inf")
        return self._patience.deadline_ms / 1000 - (self._clock.monotonic_s() - self._begin)

    def _late(self) -> EmbeddingDeadlineError:
        config = self._config
        return EmbeddingDeadlineError(
            config.patience.deadline_ms, provider=config.provider.value, model=config.model
        )


def _may_retry(outcome: _Outcome) -> bool:
    if isinstance(outcome, provider_http.NoAnswerError):
        return True
    return outcome.status == _TOO_MANY_REQUESTS or outcome.status >= 500


def _failure(request: WireRequest, outcome: _Outcome) -> Exception:
    if isinstance(outcome, provider_http.NoAnswerError):
        return EmbeddingUnreachableError(request.url, str(outcome))
    return EmbeddingRequestError(outcome.status, error_message(outcome.body))


def _summary(outcome: _Outcome) -> str:
    if isinstance(outcome, provider_http.NoAnswerError):
        # The reason may contain the address of the request.
        return shown(str(outcome))
    return f"status {outcome.status}"
