"""From a folder with `cluster.yaml` to what it declares.

Everything that can be checked without storage is checked, and everything that is wrong is reported
at once. What a part is bound to is known by name before it is loaded, so the order of kinds in
`load_desired` is only the order of findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from omnigraph.cluster.addresses import (
    Address,
    graph_address,
    pipeline_address,
    policy_address,
    provider_address,
    query_address,
    schema_address,
)
from omnigraph.cluster.config.files import Content, Files
from omnigraph.cluster.config.graphs import GraphLoader, LoadedGraph
from omnigraph.cluster.config.model import ClusterConfig
from omnigraph.cluster.config.names import check_graph_ids, check_names
from omnigraph.cluster.config.pipelines import load_pipeline
from omnigraph.cluster.config.policies import CLUSTER, PolicyLoader
from omnigraph.cluster.config.providers import load_provider
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.desired import (
    Dependency,
    Desired,
    DesiredGraph,
    EmbeddingProfile,
    Resource,
)
from omnigraph.cluster.diagnostics import Diagnostic, has_errors, warning
from omnigraph.cluster.digests import ProviderBinding, config_digest, graph_digest, provider_digest
from omnigraph.cluster.load_header import Header, config_file, load_config, load_header

__all__ = ["Header", "default_deny_warnings", "load_desired", "load_header"]


def load_desired(config_dir: str) -> Desired:
    """Read and check a folder; what is wrong is in the diagnostics."""
    config, header = load_config(config_dir)
    loader = _Loader(config_dir, config or ClusterConfig())
    loader.found += header.diagnostics
    loader.check_names()
    loader.load_providers()
    loader.load_graphs()
    loader.load_policies()
    loader.load_pipelines()
    desired = replace(
        loader.result(),
        storage=header.storage or "",
        is_locked=header.is_locked,
    )
    return desired if config is None else _with_digest(desired, config)


def default_deny_warnings(desired: Desired) -> list[Diagnostic]:
    """Return a warning for each graph without findings that may read no external blobs."""
    wrong = [found.path for found in desired.diagnostics if found.severity == "error"]
    return [
        warning(
            "external_blob_ingress_default_deny",
            below("graphs", graph_id),
            "no external blobs can be loaded, because `external_blobs.allow` names no base",
        )
        for graph_id, graph in desired.graphs.items()
        if not graph.blob_bases and not _is_about(below("graphs", graph_id), wrong)
    ]


def _is_about(path: str, paths: Iterable[str]) -> bool:
    return any(each == path or each.startswith(f"{path}.") for each in paths)


def _with_digest(desired: Desired, config: ClusterConfig) -> Desired:
    if has_errors(desired.diagnostics):
        return desired
    digests = {address: resource.digest for address, resource in desired.resources.items()}
    return replace(desired, config_digest=config_digest(config.as_json(), digests))


class _Loader:
    """Collects resources, their dependencies and findings, one kind after the other."""

    def __init__(self, config_dir: str, config: ClusterConfig) -> None:
        self.found: list[Diagnostic] = []
        self._config_dir = config_dir
        self._config = config
        self._files = Files(config_dir)
        self._resources: dict[Address, Resource] = {}
        self._dependencies: set[Dependency] = set()
        self._providers: dict[str, EmbeddingProfile] = {}
        self._graphs: dict[str, DesiredGraph] = {}
        self._policy_targets: dict[str, tuple[str, ...]] = {}

    def check_names(self) -> None:
        """Check the names of everything but queries."""
        config = self._config
        self.found += check_names("provider", config.providers, "providers.embedding")
        self.found += check_graph_ids(config.graphs)
        self.found += check_names("policy", config.policies, "policies")
        self.found += check_names("pipeline", config.pipelines, "pipelines")

    def load_providers(self) -> None:
        """Load embedding providers."""
        for name, config in self._config.providers.items():
            profile, found = load_provider(name, config)
            self.found += found
            if profile is not None:
                self._providers[name] = profile
                address = provider_address(name)
                self._resources[address] = Resource(address, provider_digest(profile))

    def load_graphs(self) -> None:
        """Load graphs with their schemas and queries."""
        graphs = GraphLoader(self._files, self._config.providers)
        for graph_id, config in self._config.graphs.items():
            loaded, found = graphs.load(graph_id, config)
            self.found += found
            self._add_graph(graph_id, loaded)

    def _add_graph(self, graph_id: str, loaded: LoadedGraph) -> None:
        graph, schema = graph_address(graph_id), schema_address(graph_id)
        self._add_file(schema, loaded.schema, needs=[graph])
        for name, registered in loaded.queries.items():
            query = query_address(graph_id, name)
            self._add_file(query, registered.content, needs=[graph, schema])
        queries = {name: each.content.digest for name, each in sorted(loaded.queries.items())}
        digest = graph_digest(
            graph_id,
            schema=None if loaded.schema is None else loaded.schema.digest,
            queries=queries,
            provider=self._binding(loaded.provider),
            blob_bases=loaded.blob_bases,
        )
        self._resources[graph] = Resource(graph, digest)
        if loaded.provider in self._resources:
            self._dependencies.add(Dependency(graph, loaded.provider))
        if loaded.schema_text is not None:
            self._graphs[graph_id] = DesiredGraph(
                graph_id, loaded.schema_text, queries, loaded.provider, loaded.blob_bases
            )

    def _binding(self, provider: Address | None) -> ProviderBinding | None:
        if provider is None:
            return None
        known = self._resources.get(provider)
        return ProviderBinding(provider, None if known is None else known.digest)

    def load_policies(self) -> None:
        """Load policy bundles and what they are bound to."""
        policies = PolicyLoader(self._files, self._config.graphs)
        for name, config in self._config.policies.items():
            loaded, found = policies.load(name, config)
            self.found += found
            self._policy_targets[name] = tuple(map(str, loaded.targets))
            graphs = [target for target in loaded.targets if target != CLUSTER]
            self._add_file(policy_address(name), loaded.content, needs=graphs)

    def load_pipelines(self) -> None:
        """Load pipelines and the graphs that they write to."""
        for name, config in self._config.pipelines.items():
            loaded, found = load_pipeline(name, config, self._files, self._config.graphs)
            self.found += found
            graphs = [] if loaded.graph is None else [loaded.graph]
            self._add_file(pipeline_address(name), loaded.content, needs=graphs)

    def _add_file(
        self, address: Address, content: Content | None, *, needs: Iterable[Address]
    ) -> None:
        if content is None:
            return
        self._resources[address] = Resource(address, content.digest, content.path, content.file)
        self._dependencies |= {Dependency(address, target) for target in needs}

    def result(self) -> Desired:
        """Return what was loaded; the digest of the whole is still missing."""
        return Desired(
            config_dir=self._config_dir,
            config_file=config_file(self._config_dir),
            storage="",
            config_digest=None,
            resources=_by_address(self._resources),
            dependencies=tuple(sorted(self._dependencies, key=_ends)),
            graphs=self._graphs,
            policy_targets=self._policy_targets,
            providers=self._providers,
            diagnostics=tuple(self.found),
        )


def _by_address(resources: Mapping[Address, Resource]) -> dict[Address, Resource]:
    return dict(sorted(resources.items(), key=lambda item: str(item[0])))


def _ends(dependency: Dependency) -> tuple[str, str]:
    return str(dependency.source), str(dependency.target)
