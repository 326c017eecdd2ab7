"""What can go wrong when text is turned into vectors."""

from __future__ import annotations

from omnigraph.errors import InvalidInputError, UnavailableError


class UnknownEmbeddingProviderError(InvalidInputError):
    """There is no embedding provider of this name."""

    code = "OG-EMBED-PROVIDER"
    hint = "set OMNIGRAPH_EMBED_PROVIDER to one of them"
    provider: str
    known: tuple[str, ...]

    def _message(self) -> str:
        return f"unknown embedding provider '{self.provider}' (expected {'|'.join(self.known)})"


class EmbeddingKeyMissingError(InvalidInputError):
    """A provider needs a key and there is none."""

    code = "OG-EMBED-KEY"
    hint = "set it, or OMNIGRAPH_EMBEDDINGS_MOCK=1 for made-up vectors"
    provider: str
    variables: tuple[str, ...]

    def _message(self) -> str:
        names = " or ".join(self.variables)
        return f"{names} is required for the {self.provider} embedding provider"


class EmbeddingModelMismatchError(InvalidInputError):
    """A text cannot be compared with vectors that another model has made."""

    code = "OG-EMBED-MODEL"
    hint = (
        "set OMNIGRAPH_EMBED_MODEL to '{recorded}', or say that a function is that model:"
        " `EmbeddingConfig.of_function(f, model='{recorded}')`; or, where the schema does not name"
        " the model, embed the property again: `omnigraph embed`"
    )
    template = (
        "the vectors of `{property_name}` come from the model '{recorded}', and texts would be"
        " embedded with '{resolved}'"
    )
    property_name: str
    recorded: str
    resolved: str


class EmbeddingModelsMixedError(InvalidInputError):
    """A text cannot be compared with vectors of which another model has made some."""

    code = "OG-EMBED-MIXED"
    hint = "`omnigraph embed` makes the vectors of the others again, with the model in use"
    template = (
        "the vectors of `{property_name}` come from several models, of '{entity_id}' from"
        " '{recorded}', and texts would be embedded with '{resolved}'"
    )
    property_name: str
    entity_id: str
    recorded: str
    resolved: str


class EmbeddingFunctionError(InvalidInputError):
    """What should make vectors is no named function, or returned something else."""

    code = "OG-EMBED-FUNCTION"
    hint = (
        "give a named function that returns one vector for each text, with the dimension of the"
        " property, or `EmbeddingConfig.of_function(f, model='…')` of"
        " `omnigraph.search.embedding.config`"
    )
    template = "the embedding function {name}: {reason}"
    name: str
    reason: str


class EmbeddingRequestError(UnavailableError):
    """The provider answered with an error."""

    code = "OG-EMBED-REQUEST"
    hint = "check the key, OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL"
    template = "embedding request failed with status {status}: {message}"
    status: int
    message: str


class EmbeddingUnreachableError(UnavailableError):
    """The provider did not answer."""

    code = "OG-EMBED-UNREACHABLE"
    hint = "check OMNIGRAPH_EMBED_BASE_URL and the network"
    template = "embedding request to {url} failed: {reason}"
    url: str
    reason: str


class EmbeddingDeadlineError(UnavailableError):
    """The call exceeded its deadline."""

    code = "OG-EMBED-DEADLINE"
    hint = "raise OMNIGRAPH_EMBED_DEADLINE_MS (0 is no deadline)"
    template = (
        "embedding deadline exceeded after {deadline_ms} ms (provider={provider}, model={model})"
    )
    deadline_ms: int
    provider: str
    model: str


class EmbeddingResponseError(UnavailableError):
    """The provider's answer is malformed."""

    code = "OG-EMBED-RESPONSE"
    hint = "check OMNIGRAPH_EMBED_PROVIDER and OMNIGRAPH_EMBED_BASE_URL"
    template = "{reason}"
    reason: str


class EmbeddingVectorError(UnavailableError):
    """The provider's vector cannot be used."""

    code = "OG-EMBED-VECTOR"
    hint = "check that the model makes vectors of the property's length"
    template = "{reason}"
    reason: str


class LocalModelError(UnavailableError):
    """The local provider cannot load its model."""

    code = "OG-EMBED-LOCAL"
    hint = "pip install sentence-transformers, and fetch the model once while online"
    template = "the local embedding model '{model}' cannot be loaded: {reason}"
    model: str
    reason: str
