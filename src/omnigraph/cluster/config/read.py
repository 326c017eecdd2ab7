"""From the text of `cluster.yaml` to a configuration of the right shape.

The checks run in this order; findings of one step keep the next from running:

1. keys that stand twice, and keys that are reserved;
2. YAML;
3. the version;
4. the shape: unknown keys, missing keys, values of another kind.
"""

from __future__ import annotations

from typing import Final, cast

from omnigraph.cluster.config.model import (
    AllowedBase,
    ClusterConfig,
    GraphConfig,
    PipelineConfig,
    PolicyConfig,
    ProviderConfig,
    Queries,
)
from omnigraph.cluster.config.shape import FILE_NAME, INVALID, Node
from omnigraph.cluster.desired import Scope
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.strict_yaml import (
    VERSION,
    NonText,
    RepeatedKey,
    StrictYamlError,
    Value,
    kind_of,
    quoted,
    read_yaml,
)
from omnigraph.texts import on_one_line

RESERVED_KEYS: Final = ("embeddings", "ui", "aliases", "bindings", "apply", "env_file")
SCOPES: Final = ("server_safe", "embedded_only")
_SHOWN_MAX: Final = 40
_KEYS: Final = (
    *("version", "metadata", "storage", "state"),
    *("providers", "graphs", "policies", "pipelines"),
)
_PROVIDER_KEYS: Final = ("kind", "provider", "base_url", "model", "api_key")
_GRAPH_KEYS: Final = ("schema", "queries", "embedding_provider", "external_blobs")


def read_config(text: str) -> tuple[ClusterConfig | None, tuple[Diagnostic, ...]]:
    """Return the configuration, or none and what is wrong with the text.

    >>> read_config("{version: 1, storage: s3://lake}")[0].storage
    's3://lake'
    """
    repeats: list[RepeatedKey] = []
    try:
        document = read_yaml(text, repeats=repeats)
    except StrictYamlError as problem:
        found = [_repeated(repeat) for repeat in repeats]
        return None, tuple(found or [error(INVALID, FILE_NAME, str(problem))])
    early = [*_reserved(document), *map(_repeated, repeats)]
    if early:
        return None, tuple(early)
    other_version = _other_version(document)
    if other_version is not None:
        return None, (other_version,)
    found = []
    config = _config(Node(document, "", found))
    return (None, tuple(found)) if found else (config, ())


def _reserved(document: Value) -> list[Diagnostic]:
    keys = document if isinstance(document, dict) else {}
    message = "is reserved for a later release and means nothing yet; remove it"
    return [
        error("future_phase_field", key, f"{quoted(key)} {message}")
        for key in RESERVED_KEYS
        if key in keys
    ]


def _repeated(repeat: RepeatedKey) -> Diagnostic:
    where = f"line {repeat.line}: the key stands in line {repeat.first_line} already"
    return error("duplicate_yaml_key", repeat.path, f"{where}; keep one of them")


def _other_version(document: Value) -> Diagnostic | None:
    version = document.get("version") if isinstance(document, dict) else None
    if not isinstance(version, NonText) or version.kind != "int" or version == VERSION:
        return None
    shown = on_one_line(version.text[:_SHOWN_MAX])
    return error(
        "unsupported_cluster_config_version",
        "version",
        f"version {shown} is not supported; write `version: {VERSION.text}`",
    )


# -- shape ----------------------------------------------------------------------------------------


def _config(root: Node) -> ClusterConfig:
    members = root.members(_KEYS)
    _check_version(root, members)
    metadata = _members(members, "metadata", ("name",))
    state = _members(members, "state", ("backend", "lock"))
    embedding = _members(members, "providers", ("embedding",))
    return ClusterConfig(
        name=_text(metadata, "name"),
        storage=_text(members, "storage"),
        state_backend=_text(state, "backend"),
        state_lock=state["lock"].flag() if "lock" in state else None,
        providers={
            name: _provider(node) for name, node in _entries(embedding, "embedding").items()
        },
        graphs={name: _graph(node) for name, node in _entries(members, "graphs").items()},
        policies={name: _policy(node) for name, node in _entries(members, "policies").items()},
        pipelines={name: _pipeline(node) for name, node in _entries(members, "pipelines").items()},
    )


def _check_version(root: Node, members: dict[str, Node]) -> None:
    if "version" not in members:
        root.note_missing("version", "; write `version: 1`")
    elif members["version"].value != VERSION:
        value = members["version"].value
        members["version"].reject(f"expected the number 1, found {kind_of(value)}")


def _provider(node: Node) -> ProviderConfig:
    members = node.members(_PROVIDER_KEYS)
    if "kind" in members and "provider" in members:
        members["provider"].reject("'provider' is another name of 'kind'; keep one of them")
    return ProviderConfig(
        kind=_text(members, "kind" if "kind" in members else "provider"),
        base_url=_text(members, "base_url"),
        model=_text(members, "model"),
        api_key=_secret(members),
    )


def _secret(members: dict[str, Node]) -> str | None:
    """Return what stands for the key, also if it is no text; messages must not repeat it."""
    if "api_key" not in members:
        return None
    value = members["api_key"].value
    if isinstance(value, NonText):
        return value.text
    if not isinstance(value, str):
        members["api_key"].reject("expected text such as `${NAME}`")
        return None
    return value


def _graph(node: Node) -> GraphConfig:
    members = node.members(_GRAPH_KEYS)
    external = _members(members, "external_blobs", ("allow",))
    return GraphConfig(
        schema=node.require(members, "schema"),
        queries=_queries(members["queries"]) if "queries" in members else {},
        embedding_provider=_text(members, "embedding_provider"),
        external_blobs=tuple(map(_allowed_base, external["allow"].items()))
        if "allow" in external
        else (),
    )


def _queries(node: Node) -> Queries:
    if isinstance(node.value, str):
        return node.value
    if isinstance(node.value, list):
        return tuple(item.text() for item in node.items())
    if isinstance(node.value, dict):
        return {
            name: entry.require(entry.members(("file",)), "file")
            for name, entry in node.entries().items()
        }
    node.reject(f"expected a path, a list of paths or a map, found {kind_of(node.value)}")
    return {}


def _allowed_base(node: Node) -> AllowedBase:
    members = node.members(("base", "scope"))
    base, scope = node.require(members, "base"), node.require(members, "scope")
    if "scope" in members:
        members["scope"].check_choice(scope, SCOPES)
    return AllowedBase(base, cast("Scope", scope))


def _policy(node: Node) -> PolicyConfig:
    members = node.members(("file", "applies_to"))
    targets = members["applies_to"].items() if "applies_to" in members else ()
    return PolicyConfig(node.require(members, "file"), tuple(item.text() for item in targets))


def _pipeline(node: Node) -> PipelineConfig:
    return PipelineConfig(node.require(node.members(("file",)), "file"))


def _members(members: dict[str, Node], name: str, known: tuple[str, ...]) -> dict[str, Node]:
    return members[name].members(known) if name in members else {}


def _entries(members: dict[str, Node], name: str) -> dict[str, Node]:
    return members[name].entries() if name in members else {}


def _text(members: dict[str, Node], name: str) -> str | None:
    return members[name].text() if name in members else None
