"""Pipelines: a file each, which names the graph that it writes to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib.util import find_spec

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.config.files import Content, Files
from omnigraph.cluster.config.model import PipelineConfig
from omnigraph.cluster.config.names import find_graph
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.strict_yaml import StrictYamlError, as_map, as_text, check_version, quoted, read_yaml
from omnigraph.texts import on_one_line


@dataclass(frozen=True)
class LoadedPipeline:
    """The file of a pipeline and the graph that it writes to, as far as they are known."""

    content: Content | None
    graph: Address | None


def load_pipeline(
    name: str, config: PipelineConfig, files: Files, graph_ids: Collection[str]
) -> tuple[LoadedPipeline, list[Diagnostic]]:
    """Return what is known of a pipeline, and what is wrong with it."""
    path = f"{below('pipelines', name)}.file"
    unreadable: list[Diagnostic] = []
    content = files.read_declared(
        config.file, code="pipeline_file_missing", where=path, found=unreadable
    )
    if content is None:
        return LoadedPipeline(None, None), unreadable
    try:
        target = _target(content.data)
    except StrictYamlError as problem:
        message = on_one_line(f"{content.path}: {problem}")
        return LoadedPipeline(content, None), [error("pipeline_invalid", path, message)]
    graph, found = find_graph(target, graph_ids, path)
    named = [replace(each, message=f"{content.path}: {each.message}") for each in found]
    return LoadedPipeline(content, graph), [*named, *_checked(content, path)]


def _checked(content: Content, path: str) -> list[Diagnostic]:
    """Return what is wrong inside a pipeline; nothing is known of it where PySpark is missing."""
    if find_spec("pyspark") is None:
        return []
    from omnigraph.pipelines.file.read import read_pipeline  # noqa: PLC0415 needs the optional library

    _, found = read_pipeline(content.data.decode(), path=content.file)
    # The variables of a run need not be those of whoever checks the files.
    return [
        Diagnostic(
            "pipeline_invalid",
            "warning" if each.code == "unknown_variable" else each.severity,
            path,
            on_one_line(f"{content.path}:{each.line}:{each.column}: {each.message}"),
        )
        for each in found
    ]


def _target(data: bytes) -> str:
    """Return the graph that the text of a pipeline writes to."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise StrictYamlError("the text is not UTF-8") from None
    members = as_map(read_yaml(text), "the pipeline")
    for key in ("version", "target"):
        if key not in members:
            raise StrictYamlError(f"{quoted(key)} is missing")
    check_version(members["version"])
    target = as_map(members["target"], "target")
    if "graph" not in target:
        raise StrictYamlError("target: 'graph' is missing; name a declared graph")
    return as_text(target["graph"], "target.graph")
