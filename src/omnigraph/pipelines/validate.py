"""`validate`: everything that can be said about a pipeline without reading a row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from omnigraph.engine import engine_named
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Catalog, Graph, OpenMode
from omnigraph.pipelines.analysis import Analysis
from omnigraph.pipelines.checks import checking_workspace
from omnigraph.pipelines.diagnostics import Diagnostic, Findings
from omnigraph.pipelines.file.model import PipelineFile, Source
from omnigraph.pipelines.file.read import read_pipeline
from omnigraph.pipelines.sources import followed_read, noticed_read
from omnigraph.records import to_json
from omnigraph.spark.steps import (
    SourceRead,
    SparkStepError,
    Workspace,
    add_stream_columns,
    stream_frame,
)


@dataclass(frozen=True)
class Validation:
    """What `validate` has found."""

    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """Whether a run would take the file."""
        return all(one.severity != "error" for one in self.diagnostics)

    def to_json(self) -> dict[str, object]:
        """Return the findings as programs see them."""
        return {"ok": self.ok, "diagnostics": [to_json(one) for one in self.diagnostics]}


def validate_text(
    text: str,
    *,
    path: Path,
    environment: Mapping[str, str] | None = None,
    graph: str | None = None,
    spark: object | None = None,
) -> Validation:
    """Validate the text of a pipeline file; `graph` takes the place of its target."""
    file, diagnostics = read_pipeline(text, path=path, environment=environment)
    if file is None:
        return Validation(diagnostics)
    if graph is not None:
        file = replace(file, target=replace(file.target, graph=graph))
    return validate_file(file, spark=spark)


def validate_file(file: PipelineFile, *, spark: object | None = None) -> Validation:
    """Validate a pipeline whose file was read."""
    findings = file.findings()
    catalog = _catalog(file, findings)
    problem = None if spark is not None else engine_named("spark").problem()
    if problem is not None:
        message = f"SQL and the types of columns were not checked: {problem}"
        findings.warning("not_checked", "", message)
        Analysis(file, catalog, None, None, findings).run()
        return Validation(findings.sorted)
    try:
        workspace = Workspace(spark, file.spark)
        checking = checking_workspace(file, spark, catalog)
    except SparkStepError as error:
        findings.error("bad_setting", "spark", str(error))
        return Validation(findings.sorted)
    analysis = Analysis(file, catalog, workspace, checking, findings)
    for source in file.sources.values():
        _add_columns(source, analysis, workspace)
    analysis.run()
    return Validation(findings.sorted)


def _catalog(file: PipelineFile, findings: Findings) -> Catalog | None:
    target = file.target
    try:
        with Graph.open(target.graph, branch=target.branch, mode=OpenMode.READ_ONLY) as graph:
            return graph.schema.catalog()
    except OmnigraphError as error:
        findings.error("graph_unreadable", "target.graph", str(error))
        return None


def _add_columns(source: Source, analysis: Analysis, workspace: Workspace) -> None:
    """Make the columns of a source known, if they can be known without reading rows."""
    path, findings = f"sources.{source.name}", analysis.findings
    options = {key.lower(): value for key, value in source.options.items()}
    if source.format == "json" and source.schema is None:
        message = "the columns of JSON files are not known without reading them; give a 'schema'"
        findings.warning("not_checked", path, message)
        analysis.unknown.add(source.name)
        return
    read: SourceRead = source
    if source.format == "csv" and source.schema is None and options.get("inferschema") == "true":
        message = "the types of columns are not known without reading rows; give a 'schema'"
        findings.warning("not_checked", path, message)
        analysis.untyped.add(source.name)
        kept = {key: value for key, value in read.options.items() if key.lower() != "inferschema"}
        read = replace(read, options=kept)
    incremental = source.incremental
    reads_new_files = incremental is not None and incremental.kind == "new_files"
    try:
        if source.is_followed:
            stream_frame(workspace, noticed_read(analysis.file, source))
            workspace.add_source(followed_read(source))
        elif source.is_stream:
            add_stream_columns(workspace, read)
        elif reads_new_files and source.schema is not None:
            # There may be no file yet.
            workspace.add_empty(source.name, source.schema)
        else:
            workspace.add_source(read)
    except SparkStepError as error:
        analysis.unknown.add(source.name)
        if reads_new_files and source.schema is None and source.is_pattern:
            message = "no file is there yet, so the columns are not known; give a 'schema'"
            findings.warning("not_checked", path, message)
        else:
            findings.error("source_unreadable", path, error.reason)
        return
    if incremental is None or incremental.kind != "by":
        return
    try:
        sql_type = workspace.mark_type(source.name, incremental.by)
    except SparkStepError as error:
        findings.error("unknown_name", f"{path}.incremental.by", error.reason)
        return
    if incremental.overlap_s and sql_type == "STRING":
        message = f"'{incremental.by}' is a text, which has no earlier value to begin from"
        findings.error("wrong_value", f"{path}.incremental.overlap", message)


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a pipeline file; bytes that are no text stand out in its diagnostics."""
    return Path(path).read_bytes().decode(errors="surrogateescape")
