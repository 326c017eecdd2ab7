"""What the files of a cluster declare, checked and digested: one frozen value.

`load_desired` makes it. Commands compare it with the ledger; nothing here touches storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.diagnostics import Diagnostic, has_errors
from omnigraph.records import OPTIONAL

Scope: TypeAlias = Literal["server_safe", "embedded_only"]
ProviderKind: TypeAlias = Literal["openai-compatible", "openai", "gemini", "mock"]


@dataclass(frozen=True)
class BlobBase:
    """A normalised URI below which external blobs may be read, and by whom."""

    uri: str
    scope: Scope


@dataclass(frozen=True)
class EmbeddingProfile:
    """How vectors are made; `api_key` is a reference `${NAME}`, never the key."""

    kind: ProviderKind = "openai-compatible"
    base_url: str | None = field(default=None, metadata=OPTIONAL)
    model: str | None = field(default=None, metadata=OPTIONAL)
    api_key: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Resource:
    """One declared thing.

    `file` is what its content is read from: of schemas, queries, policies and pipelines.
    `path` is how `cluster.yaml` spells that file.
    """

    address: Address
    digest: str
    path: str | None = None
    file: Path | None = None


@dataclass(frozen=True)
class DesiredGraph:
    """What is declared of one graph, besides the digests of its parts."""

    graph_id: str
    schema_source: str
    queries: Mapping[str, str]
    """Query name to the digest of its file."""
    embedding_provider: Address | None = None
    blob_bases: tuple[BlobBase, ...] = ()


@dataclass(frozen=True)
class Dependency:
    """`source` needs `target`."""

    source: Address
    target: Address


@dataclass(frozen=True)
class Desired:
    """The declared state of a cluster.

    With errors among the diagnostics only `config_dir`, `resources` and `dependencies` as far as
    they are known are meant for output; nothing may be applied from it.
    """

    config_dir: str
    config_file: str
    storage: str
    """The storage root: an absolute path, or a URI."""
    config_digest: str | None
    resources: Mapping[Address, Resource]
    dependencies: tuple[Dependency, ...]
    graphs: Mapping[str, DesiredGraph]
    policy_targets: Mapping[str, tuple[str, ...]]
    """Policy name to `cluster` or `graph.<id>`, sorted."""
    providers: Mapping[str, EmbeddingProfile]
    is_locked: bool = True
    """Whether commands take the lock (`state.lock`)."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether it may be compared with the ledger."""
        return not has_errors(self.diagnostics)
