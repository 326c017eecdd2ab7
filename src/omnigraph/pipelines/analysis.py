"""Checks views, mappings and checks of a pipeline against Spark and the schema of the graph.

The tables of the sources may have rows or none: only their columns matter. Both `validate` and a
run make these checks, so that a file that a run takes is one that `validate` accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.pipelines.contracts.bind import check_rule, gq_columns
from omnigraph.pipelines.diagnostics import Findings, did_you_mean
from omnigraph.pipelines.file.model import Check, LoadStep, PipelineFile
from omnigraph.pipelines.file.view_order import sources_of, tables_read
from omnigraph.pipelines.mapping import (
    Mapped,
    entity_type_of,
    loadable,
    mapped,
    missing_properties,
    unread_columns,
)
from omnigraph.schema import Catalog, EntityType
from omnigraph.spark.steps import SparkStepError, Workspace
from omnigraph.spark.steps.sample import end_problem, kind_problem


@dataclass
class Analysis:
    """One look at a pipeline; `workspace` is None where there is no Spark."""

    file: PipelineFile
    catalog: Catalog | None
    workspace: Workspace | None
    checking: Workspace | None
    """Where the types of the graph are tables, for checks in SQL; None if there are none."""
    findings: Findings
    unknown: set[str] = field(default_factory=set)
    """Tables whose columns are not known."""
    untyped: set[str] = field(default_factory=set)
    """Tables whose columns may have other types when rows are read."""

    def run(self) -> list[Mapped]:
        """Check everything, and return the mappings of the steps that are right."""
        self._views()
        steps = [found for step in self.file.load if (found := self._step(step)) is not None]
        for check in self.file.checks:
            self._check(check)
        return steps

    # -- views ------------------------------------------------------------------------------------

    def _views(self) -> None:
        known = {name.lower(): name for name in (*self.file.sources, *self.file.views)}
        for name, sql in self.file.views.items():
            read = {known[table] for table in tables_read(sql) if table in known}
            if read & self.untyped:
                self.untyped.add(name)
            if read & self.unknown or self.workspace is None:
                self.unknown.add(name)
                continue
            try:
                self.workspace.add_view(name, sql)
            except SparkStepError as error:
                self.findings.error("bad_sql", f"views.{name}", error.reason)
                self.unknown.add(name)

    # -- steps ------------------------------------------------------------------------------------

    def _step(self, step: LoadStep) -> Mapped | None:
        if self.catalog is None:
            return None
        entity_type = entity_type_of(step, self.catalog)
        if entity_type is None:
            known = tuple(
                self.catalog.node_types if step.kind == "node" else self.catalog.edge_types
            )
            message = f"the graph has no {step.kind} type '{step.type_name}'"
            self.findings.error(
                "unknown_name",
                f"{step.path}.{step.kind}",
                message + did_you_mean(step.type_name, known),
            )
            return None
        names_hold = self._names_hold(step, entity_type)
        if self.workspace is None or step.source in self.unknown:
            return None
        columns = self.workspace.columns(step.source).names
        found = mapped(step, entity_type, columns)
        if step.mapping is None:
            self._require_properties(step, entity_type, tuple(found.expressions))
            for name in unread_columns(found, columns):
                message = (
                    f"column '{name}' of '{step.source}' is no property of '{entity_type.name}'"
                )
                self.findings.warning("not_loaded", step.path, f"{message} and is not loaded")
        self._require_ids(found)
        return found if self._expressions_hold(found) and names_hold else None

    def _require_ids(self, found: Mapped) -> None:
        """Refuse rows of a followed graph that could not be found again to be deleted."""
        step, entity_type = found.step, found.entity_type
        if entity_type.key or "id" in found.expressions:
            return
        for name in sorted(sources_of(step.source, self.file.sources, self.file.views)):
            if self.file.sources[name].is_followed:
                message = f"'{entity_type.name}' has no key, so rows of '{name}' need an 'id'"
                self.findings.error("missing_property", step.path, message)

    def _names_hold(self, step: LoadStep, entity_type: EntityType) -> bool:
        if step.mapping is None:
            return True
        known = loadable(entity_type)
        unknown = [name for name in step.mapping if name not in known]
        for name in unknown:
            path = f"{step.path}.map.{name}"
            message = f"'{entity_type.name}' has no property '{name}'{did_you_mean(name, known)}"
            self.findings.error("unknown_name", path, message, at_key=True)
        return self._require_properties(step, entity_type, tuple(step.mapping)) and not unknown

    def _require_properties(
        self, step: LoadStep, entity_type: EntityType, given: tuple[str, ...]
    ) -> bool:
        missing = missing_properties(entity_type, given)
        for name in missing:
            message = f"every row of '{entity_type.name}' needs '{name}', and no column gives it"
            path = step.path if step.mapping is None else f"{step.path}.map"
            self.findings.error("missing_property", path, message)
        return not missing

    def _expressions_hold(self, found: Mapped) -> bool:
        known = (*loadable(found.entity_type), *found.step.ends)
        texts = {name: text for name, text in found.expressions.items() if name in known}
        made = self._columns(found, texts)
        kinds_hold = [self._kind_holds(found, column) for column in made]
        return len(made) == len(texts) and all(kinds_hold)

    def _columns(self, found: Mapped, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the columns of the expressions that Spark takes; the others are findings."""
        assert self.workspace is not None  # noqa: S101 - steps are looked at only with one
        source = found.step.source
        try:
            # One look at all of them is enough unless one is wrong.
            return list(self.workspace.mapped_columns(source, texts)) if texts else []
        except SparkStepError as error:
            together = error.reason
        made: list[pa.Field] = []
        for column, text in texts.items():
            try:
                made += self.workspace.mapped_columns(source, {column: text})
            except SparkStepError as error:
                self.findings.error("bad_sql", self._path_of(found, column), error.reason)
        if len(made) == len(texts):
            # Each is right alone: an aggregate next to a column, for example.
            self.findings.error("bad_sql", found.step.path, together)
            return []
        return made

    def _path_of(self, found: Mapped, column: str) -> str:
        step = found.step
        path = f"{step.path}.{column}" if column in step.ends else f"{step.path}.map.{column}"
        return path if path in self.file.locations else step.path

    def _kind_holds(self, found: Mapped, made: pa.Field) -> bool:
        if found.step.source in self.untyped:
            return True
        prop = found.entity_type.properties.get(made.name)
        problem = (
            end_problem(made.type, found.entity_type.name, made.name)
            if prop is None
            else kind_problem(made.type, prop.prop_type, made.name)
        )
        if problem is not None:
            self.findings.error("wrong_type", self._path_of(found, made.name), problem)
        return problem is None

    # -- checks -----------------------------------------------------------------------------------

    def _check(self, check: Check) -> None:
        if self.catalog is None:
            return
        if check.rule is not None:
            check_rule(check.rule, self.catalog, self.findings)
            return
        if check.language == "gq":
            columns = gq_columns(check.text, self.catalog, self.findings, f"{check.path}.gq")
        else:
            columns = self._sql_columns(check)
        missing = None if columns is None else check.expect.missing(columns)
        if missing is not None:
            message = f"'{missing}' is no column of the result: {', '.join(columns or ())}"
            self.findings.error("bad_expect", f"{check.path}.expect", message)

    def _sql_columns(self, check: Check) -> list[str] | None:
        if self.checking is None:
            return None
        try:
            return self.checking.result_columns(check.text, "check")
        except SparkStepError as error:
            path = f"{check.path}.sql"
            self.findings.error(
                "bad_sql", path if path in self.file.locations else check.path, error.reason
            )
            return None
