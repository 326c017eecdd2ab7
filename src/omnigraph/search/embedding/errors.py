"""What can go wrong when text is turned into vectors."""

from __future__ import annotations

from omnigraph.errors import InvalidInputError, UnavailableError


class UnknownEmbeddingProviderError(InvalidInputError):
    """There is no embedding provider of this name."""

    code = "OG-EMBED-PROVIDER"

    def __init__(self, provider: str, known: tuple[str, ...]) -> None:
        self.provider = provider
        self.known = known
        super().__init__(f"unknown embedding provider '{provider}' (expected {'|'.join(known)})")
        self.hint = "set OMNIGRAPH_EMBED_PROVIDER to one of them"


class EmbeddingKeyMissingError(InvalidInputError):
    """A provider needs a key and there is none."""

    code = "OG-EMBED-KEY"

    def __init__(self, provider: str, variables: tuple[str, ...]) -> None:
        self.provider = provider
        self.variables = variables
        super().__init__(
            f"{' or '.join(variables)} is required for the {provider} embedding provider"
        )
        self.hint = "set it, or OMNIGRAPH_EMBEDDINGS_MOCK=1 for made-up vectors"


class EmbeddingModelMismatchError(InvalidInputError):
    """A text cannot be compared with vectors that another model has made."""

    code = "OG-EMBED-MODEL"

    def __init__(self, property_name: str, *, recorded: str, resolved: str) -> None:
        self.property_name = property_name
        self.recorded = recorded
        self.resolved = resolved
        super().__init__(
            f"the vectors of `{property_name}` come from the model '{recorded}', and texts would be"
            f" embedded with '{resolved}'"
        )
        self.hint = f"set OMNIGRAPH_EMBED_MODEL to '{recorded}', or embed the property again"


class EmbeddingRequestError(UnavailableError):
    """The provider answered with an error."""

    code = "OG-EMBED-REQUEST"
    hint = "check the key, OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL"

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"embedding request failed with status {status}: {message}")


class EmbeddingUnreachableError(UnavailableError):
    """The provider did not answer."""

    code = "OG-EMBED-UNREACHABLE"

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"embedding request to {url} failed: {reason}")
        self.hint = "check OMNIGRAPH_EMBED_BASE_URL and the network"


class EmbeddingDeadlineError(UnavailableError):
    """The call exceeded its deadline."""

    code = "OG-EMBED-DEADLINE"

    def __init__(self, deadline_ms: int, *, provider: str, model: str) -> None:
        self.deadline_ms = deadline_ms
        self.provider = provider
        self.model = model
        super().__init__(
            f"embedding deadline exceeded after {deadline_ms} ms"
            f" (provider={provider}, model={model})"
        )
        self.hint = "raise OMNIGRAPH_EMBED_DEADLINE_MS (0 is no deadline)"


class EmbeddingResponseError(UnavailableError):
    """The provider's answer is malformed."""

    code = "OG-EMBED-RESPONSE"
    hint = "check OMNIGRAPH_EMBED_PROVIDER and OMNIGRAPH_EMBED_BASE_URL"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class EmbeddingVectorError(UnavailableError):
    """The provider's vector cannot be used."""

    code = "OG-EMBED-VECTOR"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
        self.hint = "check that the model makes vectors of the property's length"


class LocalModelError(UnavailableError):
    """The local provider cannot load its model."""

    code = "OG-EMBED-LOCAL"

    def __init__(self, model: str, reason: str) -> None:
        self.model = model
        self.reason = reason
        super().__init__(f"the local embedding model '{model}' cannot be loaded: {reason}")
        self.hint = "pip install sentence-transformers, and fetch the model once while online"
