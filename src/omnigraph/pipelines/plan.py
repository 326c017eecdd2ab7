"""`plan`: what a run would read, load, check and publish, with counts from a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.graph import Graph, OpenMode
from omnigraph.pipelines.analysis import Analysis
from omnigraph.pipelines.checks import checking_workspace
from omnigraph.pipelines.file.model import PipelineFile
from omnigraph.pipelines.history import Published, published_on
from omnigraph.pipelines.mapping import Mapped
from omnigraph.pipelines.sources import Prepared, SourceEmptyError, as_batch, prepare_sources
from omnigraph.spark.steps import SampleCheck, Workspace, check_sample

SAMPLE_ROWS: Final = 1_000
"""So many rows of each step are looked at, unless the caller says another number."""


@dataclass(frozen=True)
class PlannedLoad:
    """One step, and what a sample of its rows shows."""

    mapped: Mapped
    sample: SampleCheck

    def to_json(self, hide: Callable[[str], str] = str) -> dict[str, object]:
        """Return the step as programs see it; `hide` takes secrets out of its expressions."""
        step = self.mapped.step
        shape: dict[str, object] = {
            "type": step.type_name,
            "kind": step.kind,
            "from": step.source,
            "mode": step.mode,
            "columns": {name: hide(text) for name, text in self.mapped.expressions.items()},
            "sample_rows": self.sample.rows,
            "sample_rejected": self.sample.rejected,
        }
        return shape | {"problems": list(self.sample.problems)} if self.sample.problems else shape


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    file: PipelineFile
    prepared: Prepared
    views: Mapping[str, tuple[str, ...]]
    load: tuple[PlannedLoad, ...]

    def to_json(self) -> dict[str, object]:
        """Return the plan as programs see it."""
        return {
            "pipeline": self.file.name,
            "sources": [self._source(name) for name in self.file.sources],
            "views": [{"name": name, "columns": list(cols)} for name, cols in self.views.items()],
            "load": [one.to_json(self.file.variables.hide) for one in self.load],
            "checks": [
                {"name": check.name, "language": check.language, "expect": check.expect.text}
                for check in self.file.checks
            ],
            "publish": str(self.file.target.publish),
            **({} if self.file.trigger is None else {"trigger": self.file.trigger.to_json()}),
        }

    def _source(self, name: str) -> dict[str, object]:
        read = next(one for one in self.prepared.inputs if one.source == name)
        shape: dict[str, object] = {
            "name": name,
            "format": read.format,
            "files": read.files,
            "rows": read.rows,
        }
        mark = self.prepared.watermarks.get(name)
        known = {key: value for key, value in shape.items() if value is not None}
        return known if mark is None else known | {"watermark": mark.value}


def plan_pipeline(
    file: PipelineFile, *, spark: object | None = None, sample_rows: int = SAMPLE_ROWS
) -> Plan:
    """Plan a run; rows are read for the sample, and nothing is written."""
    target = file.target
    with Graph.open(target.graph, branch=target.branch, mode=OpenMode.READ_ONLY) as graph:
        published = Published()
        if file.trigger is None:
            published = published_on(graph, target.branch, file.name)
        catalog = graph.schema.catalog()
    workspace = Workspace(spark, file.spark)
    prepared = prepare_sources(as_batch(file), workspace, published)
    for source in prepared.without_columns:
        raise SourceEmptyError(source)
    checking = checking_workspace(file, spark, catalog)
    findings = file.findings()
    steps = Analysis(file, catalog, workspace, checking, findings).run()
    findings.require_usable(str(file.path))
    return Plan(
        file,
        prepared,
        views={name: tuple(workspace.columns(name).names) for name in file.views},
        load=tuple(_planned(one, workspace, sample_rows) for one in steps),
    )


def _planned(one: Mapped, workspace: Workspace, sample_rows: int) -> PlannedLoad:
    frame = workspace.mapped(one.step.source, one.expressions, one.what)
    rows = workspace.sample(frame, sample_rows, one.what)
    return PlannedLoad(one, check_sample(one.entity_type, rows))
