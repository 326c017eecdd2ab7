"""Lint: every query of a text compiled against a catalog, with advice about the whole.

A report holds one result per query and the findings about the file. It is an error when a query
fails or a finding is one; warnings never fail it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from omnigraph.query.compile import try_compile
from omnigraph.query.describe import OperationDescriptor, describe_plan
from omnigraph.query.language.codes import QUERY_LETTER, QUERY_REPEATED
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.tree import QueryDecl, QueryFile
from omnigraph.query.plan.plan import Plan, ReadPlan, UpdateRows, UpsertNode
from omnigraph.query.select import repeated_queries
from omnigraph.records import JsonObject
from omnigraph.schema.catalog import Catalog, NodeType
from omnigraph.syntax import Diagnostic, SourceError, SourceText
from omnigraph.syntax.grammar import decode_source

Severity = Literal["error", "warning", "info"]
_SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")

NO_PARAMETERS: Final = "mutation has no parameters: every run writes the same values"


@dataclass(frozen=True)
class SchemaSource:
    """Where the catalog came from: a schema file, or a graph."""

    kind: Literal["file", "graph"]
    location: str

    def as_json(self) -> JsonObject:
        """Return `{kind, path}` or `{kind, uri}`."""
        return {"kind": self.kind, "path" if self.kind == "file" else "uri": self.location}


@dataclass(frozen=True)
class QueryLint:
    """What lint says about one query; it has an `error` or an `operation`."""

    name: str
    kind: Literal["read", "mutation"]
    warnings: tuple[str, ...] = ()
    error: str | None = None
    operation: OperationDescriptor | None = None

    @property
    def status(self) -> Literal["ok", "error"]:
        """Whether the query compiles."""
        return "ok" if self.error is None else "error"

    def as_json(self) -> JsonObject:
        """Return `{name, kind, status, warnings?, error?, operation?}`."""
        form: JsonObject = {"name": self.name, "kind": self.kind, "status": self.status}
        if self.warnings:
            form["warnings"] = list(self.warnings)
        if self.error is not None:
            form["error"] = self.error
        if self.operation is not None:
            form["operation"] = self.operation.as_json()
        return form


@dataclass(frozen=True)
class Finding:
    """Something about the file as a whole."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()

    def as_json(self) -> JsonObject:
        """Return `{severity, code, message, type_name?, property?, query_names?}`."""
        form: JsonObject = {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
        }
        if self.type_name:
            form["type_name"] = self.type_name
        if self.property:
            form["property"] = self.property
        if self.query_names:
            form["query_names"] = list(self.query_names)
        return form

    def sort_key(self) -> tuple[int, str, str, str]:
        """Order by severity, type, property and message."""
        return (
            _SEVERITIES.index(self.severity),
            self.type_name or "",
            self.property or "",
            self.message,
        )


@dataclass(frozen=True)
class LintReport:
    """The outcome of lint for one file."""

    schema_source: SchemaSource
    query_path: str
    results: tuple[QueryLint, ...]
    findings: tuple[Finding, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    """Every problem with its position, for people; the JSON form holds the headlines."""

    @property
    def errors(self) -> int:
        """Queries that fail, and findings that are errors."""
        return sum(r.error is not None for r in self.results) + self._count("error")

    @property
    def warnings(self) -> int:
        """Warnings of queries, and findings that are warnings."""
        return sum(len(r.warnings) for r in self.results) + self._count("warning")

    @property
    def infos(self) -> int:
        """Findings that only inform."""
        return self._count("info")

    @property
    def status(self) -> Literal["ok", "error"]:
        """`error` when anything is."""
        return "error" if self.errors else "ok"

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def as_json(self) -> JsonObject:
        """Return the report as clients read it."""
        return {
            "status": self.status,
            "schema_source": self.schema_source.as_json(),
            "query_path": self.query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": [result.as_json() for result in self.results],
            "findings": [finding.as_json() for finding in self.findings],
        }

    def lines(self) -> tuple[str, ...]:
        """Return the report for people: a line per result, warning and finding, then the totals."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        for result in self.results:
            if result.error is None:
                yield f"OK    {result.kind} {result.name}"
            else:
                yield f"ERROR {result.kind} {result.name}: {_on_one_line(result.error)}"
            for warning in result.warnings:
                yield f"WARN  {result.kind} {result.name}: {warning}"
        for finding in self.findings:
            names = f" ({', '.join(finding.query_names)})" if finding.query_names else ""
            text = f"{finding.code}: {_on_one_line(finding.message)}{names}"
            yield f"{_LABELS[finding.severity]} {text}"
        totals = [
            _counted(len(self.results), "query", "queries"),
            _counted(self.errors, "error", "errors"),
            _counted(self.warnings, "warning", "warnings"),
            _counted(self.infos, "info", "infos"),
        ]
        yield f"INFO  {', '.join(totals)}"


_LABELS: Final[dict[Severity, str]] = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}


def lint_queries(
    source: SourceText | bytes, catalog: Catalog, *, schema_source: SchemaSource, query_path: str
) -> LintReport:
    """Lint the queries of one text. Never raises for anything that the text contains."""
    try:
        if isinstance(source, bytes):
            source = decode_source(source, query_path, QUERY_LETTER)
        file = parse_queries(source)
    except SourceError as error:
        finding = Finding("error", "Q000", str(error))
        return LintReport(schema_source, query_path, (), (finding,), error.diagnostics)
    compiled = [(query, *try_compile(query, catalog, file.source)) for query in file.queries]
    results = tuple(
        _query_lint(query, plan, str(SourceError(found)) if found else None)
        for query, plan, found in compiled
    )
    plans = [plan for _, plan, _ in compiled if plan is not None]
    findings = [*_repeated_names(file), *_unset_properties(plans, catalog)]
    return LintReport(
        schema_source,
        query_path,
        results,
        tuple(sorted(findings, key=Finding.sort_key)),
        tuple(problem for _, _, found in compiled for problem in found),
    )


def _query_lint(query: QueryDecl, plan: Plan | None, error: str | None) -> QueryLint:
    has_constant_effect = query.is_mutation and not query.parameters
    return QueryLint(
        name=query.name,
        kind="mutation" if query.is_mutation else "read",
        warnings=(NO_PARAMETERS,) if has_constant_effect else (),
        error=error,
        operation=None if plan is None else describe_plan(plan),
    )


def _repeated_names(file: QueryFile) -> Iterator[Finding]:
    for name in sorted({query.name for query in repeated_queries(file)}):
        yield Finding(
            "error",
            QUERY_REPEATED,
            f"query '{name}' is declared more than once; only the first can be called",
            query_names=(name,),
        )


def _unset_properties(plans: list[Plan], catalog: Catalog) -> Iterator[Finding]:
    """Find nullable properties of updated node types that no update sets (L201)."""
    assigned: dict[str, set[str]] = defaultdict(set)
    updating: dict[str, set[str]] = defaultdict(set)
    for plan in plans:
        for type_name, properties in _updates(plan):
            assigned[type_name] |= properties
            updating[type_name].add(plan.name)
    for type_name, names in updating.items():
        for name in _optional_properties(catalog.node_types[type_name]):
            if name not in assigned[type_name]:
                yield Finding(
                    "warning",
                    "L201",
                    f"no update sets the nullable property '{name}' of node type '{type_name}'",
                    type_name,
                    name,
                    tuple(sorted(names)),
                )


def _updates(plan: Plan) -> Iterator[tuple[str, set[str]]]:
    if isinstance(plan, ReadPlan):
        return
    for statement in plan.statements:
        if isinstance(statement, UpsertNode) or (
            isinstance(statement, UpdateRows) and statement.kind == "node"
        ):
            yield statement.type_name, {a.property for a in statement.assignments}


def _optional_properties(node: NodeType) -> Iterator[str]:
    for name, declared in node.properties.items():
        is_derived = name in node.key or name in node.embed_sources
        if declared.prop_type.nullable and not is_derived:
            yield name


def _on_one_line(text: str) -> str:
    return "; ".join(text.splitlines())


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
