"""Reads a pipeline file: text to checked values, or everything that is wrong with it.

Nothing outside the file is looked at, except the environment and files of contracts. Names inside
the file (what a view or a step reads) are checked here; what only Spark or the graph knows is
checked by `validate`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from omnigraph.names import (
    BranchName,
    EntityKind,
    IllegalNameError,
    InvalidTextError,
    check_commit_texts,
)
from omnigraph.pipelines.contracts.file import read_contract_file
from omnigraph.pipelines.contracts.model import ContractRule
from omnigraph.pipelines.contracts.read import numbered, read_contracts
from omnigraph.pipelines.diagnostics import Diagnostic, Findings, PipelineFileError, did_you_mean
from omnigraph.pipelines.file.expect import ExpectError, parse_expect
from omnigraph.pipelines.file.model import (
    Check,
    ErrorPolicy,
    Incremental,
    LoadStep,
    PipelineFile,
    Publish,
    Source,
    Target,
)
from omnigraph.pipelines.file.shape import Shape
from omnigraph.pipelines.file.trigger import check_stream, read_trigger
from omnigraph.pipelines.file.variables import Variables
from omnigraph.pipelines.file.view_order import QUERY_WORDS, check_views, first_word, sources_of
from omnigraph.pipelines.file.yaml_value import read_value, undecodable
from omnigraph.pipelines.record import RESERVED_PROPERTIES
from omnigraph.strict_yaml import Location

_T = TypeVar("_T")

FORMATS: Final = (
    *("parquet", "csv", "json", "orc", "avro", "text"),
    *("jdbc", "delta", "iceberg", "omnigraph", "table"),
)
FILE_FORMATS: Final = frozenset({"parquet", "csv", "json", "orc", "avro", "text"})
_NOT_WITH_VERSION: Final = frozenset(
    {"versionasof", "timestampasof", "readchangefeed", "startingversion", "endingversion"}
    | {"query", "filter", "fragmentsperpartition"}
)
"""Options of a graph that contradict a read of its changes."""
MODES: Final = ("append", "merge", "overwrite")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_REQUIRED: Final = ("version", "name", "target", "sources", "load")
_OPTIONAL: Final = ("views", "checks", "expectations", "on_error", "properties", "spark", "trigger")


def read_pipeline(
    text: str,
    *,
    path: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[PipelineFile | None, tuple[Diagnostic, ...]]:
    """Read a pipeline; None if the file has errors.

    Relative paths begin at `folder`, by default the folder of the file. It is made absolute: Spark
    may run in another directory.
    """
    locations: dict[str, Location] = {}
    findings = Findings(locations)
    value = read_value(text, locations, findings)
    if value is None:
        return None, findings.sorted
    variables = Variables(os.environ if environment is None else environment)
    filled = variables.fill(value, "", findings)
    start = path.parent.absolute() if folder is None else folder
    found = _Reader(Shape(filled, "", findings), path, start).read()
    if found is None or findings.has_errors:
        return None, findings.sorted
    digest = f"sha256:{sha256(text.encode()).hexdigest()}"
    made = replace(found, digest=digest, locations=locations, variables=variables)
    return made, findings.sorted


def load_pipeline_file(
    path: str | os.PathLike[str], *, environment: Mapping[str, str] | None = None
) -> PipelineFile:
    """Read the file of a pipeline, or raise with everything that is wrong with it."""
    at = Path(path)
    try:
        text = at.read_bytes().decode()
    except UnicodeDecodeError:
        raise PipelineFileError(str(path), (undecodable(),)) from None
    found, diagnostics = read_pipeline(text, path=at, environment=environment)
    if found is None:
        errors = tuple(one for one in diagnostics if one.severity == "error")
        raise PipelineFileError(str(path), errors)
    return found


class _Reader:
    """Reads the parts of a file, one after the other."""

    def __init__(self, shape: Shape, path: Path, folder: Path) -> None:
        self._shape = shape
        self._findings = shape.findings
        self._path = path
        self._folder = folder

    def read(self) -> PipelineFile | None:
        top = self._shape.entries(required=_REQUIRED, optional=_OPTIONAL)
        if top is None:
            return None
        if "version" in top and top["version"].whole_number() not in (1, None):
            top["version"].wrong("the version of the file must be 1")
        sources = self._named(top.get("sources"), self._source)
        views = self._named(top.get("views"), lambda _, shape: _query(shape))
        self._check_names(sources, views)
        # A source or view that is broken has its own message.
        tables = {name: None for part in ("sources", "views") for name in _names(top.get(part))}
        load = tuple(
            step
            for item in (top["load"].items() if "load" in top else ())
            if (step := self._step(item, tables)) is not None
        )
        if "load" in top and top["load"].value == []:
            top["load"].wrong("expected at least one step")
        ordered = check_views(views, self._findings)
        if not self._findings.has_errors:
            self._check_modes(load, sources, ordered)
        checks = self._checks(top)
        found = PipelineFile(
            name=self._name(top.get("name")),
            path=self._path,
            digest="",
            target=self._target(top.get("target")),
            sources=sources,
            views=ordered,
            load=load,
            trigger=read_trigger(top["trigger"], self._absolute) if "trigger" in top else None,
            checks=checks,
            on_error=self._on_error(top.get("on_error")),
            properties=self._properties(top.get("properties")),
            spark=top["spark"].scalars() if "spark" in top else {},
        )
        return check_stream(found, self._findings)

    def _named(self, shape: Shape | None, read: Callable[[str, Shape], _T | None]) -> dict[str, _T]:
        """Read a map of tables by name."""
        found: dict[str, _T] = {}
        for name, inner in ((shape.members() or {}) if shape is not None else {}).items():
            if not _TABLE_NAME.fullmatch(name):
                message = f"'{name}' is no name of a table: use letters, digits and '_'"
                self._findings.error("bad_name", inner.path, message, at_key=True)
                continue
            value = read(name, inner)
            if value is not None:
                found[name] = value
        return found

    def _check_names(self, sources: Mapping[str, Source], views: Mapping[str, str]) -> None:
        """Refuse names that Spark cannot tell apart."""
        seen: dict[str, str] = {}
        for path, name in [
            *((f"sources.{name}", name) for name in sources),
            *((f"views.{name}", name) for name in views),
        ]:
            other = seen.setdefault(name.lower(), path)
            if other != path:
                message = f"'{name}' is the name of {other} too; case makes no difference"
                self._findings.error("repeated_name", path, message, at_key=True)

    def _name(self, shape: Shape | None) -> str:
        name = "" if shape is None else shape.text()
        if shape is not None and name and not _NAME.fullmatch(name):
            shape.wrong(f"'{name}' is no name: use letters, digits, '_' and '-', at most 100")
        return name

    def _target(self, shape: Shape | None) -> Target:
        optional = ("branch", "publish")
        entries = shape.entries(required=("graph",), optional=optional) if shape else None
        if not entries or "graph" not in entries:
            return Target("")
        branch = entries["branch"].text() if "branch" in entries else "main"
        try:
            BranchName.parse(branch)
        except IllegalNameError as error:
            entries["branch"].wrong(str(error))
        known = tuple(map(str, Publish))
        publish = entries["publish"].choice(known) if "publish" in entries else None
        graph = self._absolute(entries["graph"].text())
        return Target(graph, branch, Publish(publish or Publish.MERGE))

    def _absolute(self, path: str) -> str:
        """Return a path, relative ones from the folder of the file."""
        if not path or "://" in path or path.startswith("file:"):
            return path
        return str(self._folder / Path(path).expanduser())

    # -- sources ----------------------------------------------------------------------------------

    def _source(self, name: str, shape: Shape) -> Source | None:
        optional = ("format", "path", "table", "options", "schema", "incremental", "stream")
        entries = shape.entries(optional=optional)
        if entries is None:
            return None
        form = self._format(entries, shape)
        if form is None:
            return None
        source = Source(
            name,
            form,
            paths=self._paths(entries.get("path")),
            table=entries["table"].text() if "table" in entries else None,
            options=entries["options"].scalars() if "options" in entries else {},
            schema=entries["schema"].text() if "schema" in entries else None,
            is_stream="stream" not in entries or entries["stream"].is_true(),
        )
        self._check_location(source, entries, shape)
        if "incremental" not in entries:
            return source
        return replace(source, incremental=self._incremental(source, entries["incremental"]))

    def _format(self, entries: Mapping[str, Shape], shape: Shape) -> str | None:
        if "format" in entries:
            return entries["format"].choice(FORMATS)
        if "table" in entries:
            return "table"
        self._findings.error("missing_key", shape.path, "'format' is missing", at_key=True)
        return None

    def _paths(self, shape: Shape | None) -> tuple[str, ...]:
        if shape is None:
            return ()
        if isinstance(shape.value, list):
            return tuple(self._absolute(item.text()) for item in shape.items())
        return (self._absolute(shape.text()),)

    def _check_location(self, source: Source, entries: Mapping[str, Shape], shape: Shape) -> None:
        form = source.format
        needs, other = ("table", "path") if form == "table" else ("path", "table")
        if form == "iceberg" and source.table is not None:
            needs, other = "table", "path"
        if form == "jdbc":
            for key in ("url", "dbtable"):
                if key not in source.options and not (
                    key == "dbtable" and "query" in source.options
                ):
                    message = f"a source of format jdbc needs the option '{key}'"
                    self._findings.error("missing_key", shape.path, message, at_key=True)
        elif needs not in entries:
            message = f"'{needs}' is missing: a source of format {form} has one"
            self._findings.error("missing_key", shape.path, message, at_key=True)
        if other in entries or (form == "jdbc" and "path" in entries):
            key = "path" if form == "jdbc" and "path" in entries else other
            message = f"a source of format {form} has no '{key}'"
            self._findings.error("unknown_key", entries[key].path, message, at_key=True)
        if form == "omnigraph":
            if len(source.paths) > 1:
                entries["path"].wrong("a source of format omnigraph reads one graph")
            if not {"node", "edge", "query", "readChangeFeed"} & set(source.options):
                message = "give one of the options 'node', 'edge', 'query', 'readChangeFeed'"
                self._findings.error("missing_key", shape.path, message, at_key=True)

    def _incremental(self, source: Source, shape: Shape) -> Incremental | None:
        entries = shape.entries(optional=("by", "overlap", "new_files", "version"))
        if entries is None:
            return None
        kinds = [key for key in ("by", "new_files", "version") if key in entries]
        if len(kinds) != 1:
            shape.wrong("expected one of 'by', 'new_files' and 'version'")
            return None
        if "overlap" in entries and kinds != ["by"]:
            message = "'overlap' goes with 'by'"
            self._findings.error("unknown_key", entries["overlap"].path, message, at_key=True)
        if kinds == ["by"]:
            overlap = entries["overlap"].duration_s() if "overlap" in entries else 0
            return Incremental("by", entries["by"].text(), overlap)
        if not entries[kinds[0]].is_true():
            return None
        if kinds == ["new_files"]:
            if source.format not in FILE_FORMATS:
                shape.wrong(f"'new_files' is for files; the format is {source.format}")
            return Incremental("new_files")
        pinned = [name for name in source.options if name.lower() in _NOT_WITH_VERSION]
        if source.format == "omnigraph" and pinned:
            shape.wrong(f"'version' chooses what is read: leave the option '{pinned[0]}' out")
        if source.format != "omnigraph" or not {"node", "edge"} & set(source.options):
            message = "'version' is for sources of format omnigraph that name a 'node' or 'edge'"
            if source.format in ("delta", "iceberg"):
                message += f"; versions of {source.format} tables are not read: use 'by'"
            self._findings.error("not_supported", shape.path, message)
        return Incremental("version")

    # -- steps ------------------------------------------------------------------------------------

    def _step(self, shape: Shape, tables: Mapping[str, object]) -> LoadStep | None:
        optional = ("node", "edge", "map", "src", "dst")
        entries = shape.entries(required=("from", "mode"), optional=optional)
        if entries is None or "from" not in entries or "mode" not in entries:
            return None
        kinds: list[EntityKind] = [kind for kind in ("node", "edge") if kind in entries]
        if len(kinds) != 1:
            shape.wrong("expected one of 'node' and 'edge'", "missing_key")
            return None
        kind = kinds[0]
        for end in ("src", "dst"):
            if kind == "node" and end in entries:
                message = f"'{end}' is for edges"
                self._findings.error("unknown_key", entries[end].path, message, at_key=True)
            if kind == "edge" and end not in entries:
                message = f"'{end}' is missing: the expression of an end of the edge"
                self._findings.error("missing_key", shape.path, message)
        origin = entries["from"].text()
        if origin and origin not in tables:
            message = f"no source or view is named '{origin}'{did_you_mean(origin, tables)}"
            entries["from"].wrong(message, "unknown_name")
        mode = entries["mode"].choice(MODES) or "merge"
        return LoadStep(
            kind,
            entries[kind].text(),
            origin,
            mode,
            mapping=entries["map"].scalars() if "map" in entries else None,
            ends={end: entries[end].scalar() for end in ("src", "dst") if end in entries},
            path=shape.path,
        )

    def _check_modes(
        self, load: Sequence[LoadStep], sources: Mapping[str, Source], views: Mapping[str, str]
    ) -> None:
        """Refuse modes that would lose or repeat rows of incremental sources."""
        for step in load:
            for name in sorted(sources_of(step.source, sources, views)):
                incremental = sources[name].incremental
                if incremental is None or step.mode == "merge":
                    continue
                message = f"'{name}' reads only new rows, and an overwrite would drop all others"
                if step.mode == "append":
                    if not incremental.overlap_s:
                        continue
                    message = f"'{name}' reads rows again ('overlap'), so the mode must be merge"
                self._findings.error("wrong_value", f"{step.path}.mode", message)

    # -- the rest ---------------------------------------------------------------------------------

    def _checks(self, top: Mapping[str, Shape]) -> tuple[Check, ...]:
        found: list[Check] = []
        rules: list[ContractRule] = []
        for shape in top["checks"].items() if "checks" in top else ():
            if isinstance(shape.value, dict) and "contracts" in shape.value:
                rules += self._contracts(shape)
                continue
            check = self._check(shape)
            if check is not None:
                found.append(check)
        if "expectations" in top:
            rules += read_contracts(top["expectations"])
        found += [_rule_check(rule) for rule in numbered(rules)]
        seen: set[str] = set()
        for check in found:
            if check.name in seen:
                message = f"another check is named '{check.name}'"
                self._findings.error("repeated_name", check.path, message)
            seen.add(check.name)
        return tuple(found)

    def _contracts(self, shape: Shape) -> list[ContractRule]:
        """Return the rules of another file; each stands where that file is named."""
        entries = shape.entries(required=("contracts",))
        name = "" if entries is None else entries["contracts"].text()
        if entries is None or not name:
            return []
        at = entries["contracts"]
        rules, problem = read_contract_file(Path(self._absolute(name)))
        if problem is not None:
            at.wrong(problem)
        return [replace(rule, path=at.path) for rule in rules]

    def _check(self, shape: Shape) -> Check | None:
        optional = ("gq", "sql", "severity")
        entries = shape.entries(required=("name", "expect"), optional=optional)
        if entries is None or "name" not in entries or "expect" not in entries:
            return None
        if ("gq" in entries) == ("sql" in entries):
            shape.wrong("expected one of 'gq' and 'sql'", "missing_key")
            return None
        severity = entries["severity"].choice(("error", "warn")) if "severity" in entries else ""
        try:
            expect = parse_expect(entries["expect"].text())
        except ExpectError as error:
            entries["expect"].wrong(str(error), "bad_expect")
            return None
        name, is_warning = entries["name"].text(), severity == "warn"
        if "gq" in entries:
            return Check(name, "gq", entries["gq"].text(), expect, shape.path, is_warning)
        return Check(name, "sql", _query(entries["sql"]), expect, shape.path, is_warning)

    def _on_error(self, shape: Shape | None) -> ErrorPolicy:
        entries = shape.entries(required=("policy",), optional=("dir", "max")) if shape else None
        if not entries or "policy" not in entries:
            return ErrorPolicy()
        quarantines = entries["policy"].choice(("fail", "quarantine")) == "quarantine"
        if quarantines != ("dir" in entries):
            message = "'dir' goes with the policy quarantine: give both or none"
            self._findings.error("missing_key", "on_error", message, at_key=True)
        folder = Path(self._absolute(entries["dir"].text())) if "dir" in entries else None
        rows_max = entries["max"].whole_number() if "max" in entries else None
        return ErrorPolicy(quarantines, folder, rows_max)

    def _properties(self, shape: Shape | None) -> dict[str, str]:
        found = {} if shape is None else shape.scalars()
        for key in found:
            if key in RESERVED_PROPERTIES:
                message = f"'{key}' is written by the run itself"
                self._findings.error("bad_name", f"properties.{key}", message, at_key=True)
        try:
            check_commit_texts(properties=found)
        except InvalidTextError as error:
            self._findings.error("wrong_value", "properties", str(error))
        return found


def _query(shape: Shape) -> str:
    """Return the text of a query; what changes something is refused."""
    text = shape.text()
    first = first_word(text)
    if text.strip() and first not in QUERY_WORDS:
        known = ", ".join(word.upper() for word in QUERY_WORDS[:-1])
        shape.wrong(f"expected a query, which begins with {known}, found '{first}'", "bad_sql")
    return text


def _names(shape: Shape | None) -> tuple[str, ...]:
    """Return the keys of a map, whatever their values are."""
    return tuple(shape.value) if shape is not None and isinstance(shape.value, dict) else ()


def _rule_check(rule: ContractRule) -> Check:
    name, is_warning = rule.name, rule.is_warning
    return Check(name, "rule", rule.text, rule.expect, rule.path, is_warning, rule=rule)
