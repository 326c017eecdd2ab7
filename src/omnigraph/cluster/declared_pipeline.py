"""A pipeline of a cluster: the file that the folder declares, and the graph that it loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omnigraph.cluster.applied import GraphNotAppliedError
from omnigraph.cluster.config.files import Files
from omnigraph.cluster.config.pipelines import load_pipeline
from omnigraph.cluster.diagnostics import Diagnostic
from omnigraph.cluster.load_header import load_config
from omnigraph.cluster.read_applied import applied_graph_uris
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.texts import redacted


class PipelineNotDeclaredError(NotFoundError):
    """A pipeline of a cluster was asked for that its folder does not declare."""

    code = "OG-PIPELINE-NOT-DECLARED"
    hint = "declare it below `pipelines:` of cluster.yaml"
    name: str
    folder: str
    declared: tuple[str, ...]

    def _message(self) -> str:
        known = ", ".join(self.declared) or "none"
        return f"cluster {self.folder} declares no pipeline '{self.name}' (declared: {known})"


class ClusterFilesError(InvalidInputError):
    """The files of a cluster do not say what a command needs; carries the findings."""

    code = "OG-CLUSTER-FILES"
    hint = "`omnigraph cluster validate` lists everything that is wrong"
    folder: str
    findings: tuple[Diagnostic, ...]

    def _message(self) -> str:
        lines = (f"[{one.code}] {one.path}: {one.message}" for one in self.findings)
        return "\n".join((f"the files of cluster {self.folder} have mistakes:", *lines))


@dataclass(frozen=True)
class DeclaredPipeline:
    """Where the file of a pipeline is, and the root of the applied graph that it loads."""

    file: Path
    graph: str


def declared_pipeline(config_dir: str, name: str) -> DeclaredPipeline:
    """Find a pipeline of a folder with `cluster.yaml`; what is declared wrong is raised."""
    config, header = load_config(config_dir)
    if config is None:
        raise ClusterFilesError(redacted(config_dir), header.diagnostics)
    if name not in config.pipelines:
        raise PipelineNotDeclaredError(name, redacted(config_dir), tuple(config.pipelines))
    loaded, found = load_pipeline(name, config.pipelines[name], Files(config_dir), config.graphs)
    if loaded.content is None or loaded.graph is None:
        raise ClusterFilesError(redacted(config_dir), tuple(found))
    applied = applied_graph_uris(config_dir)
    graph_id = loaded.graph.name
    if graph_id not in applied:
        raise GraphNotAppliedError(graph_id, redacted(config_dir), tuple(applied))
    return DeclaredPipeline(loaded.content.file, applied[graph_id])
