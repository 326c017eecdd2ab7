"""Reads a test file: text to checked values, or everything that is wrong with it.

The schema and the queries that the file names are read too: a test of a query that does not exist
is a mistake of the file, and not a test that fails. Fixtures are built when a test needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from omnigraph.errors import OmnigraphError
from omnigraph.graph import ReadTarget, Registry, SourceText, load_queries
from omnigraph.pipelines.contracts.read import read_contracts
from omnigraph.pipelines.data_tests.model import (
    Act,
    Apply,
    Ask,
    DataTest,
    Fixture,
    Load,
    Merge,
    Mutate,
    PlanWanted,
    RowsFixture,
    RunPipeline,
    SampledFixture,
    TestFile,
    TestFileError,
    Then,
    Wanted,
)
from omnigraph.pipelines.data_tests.values import json_object, json_objects
from omnigraph.pipelines.diagnostics import Diagnostic, Findings, did_you_mean
from omnigraph.pipelines.file.shape import Shape
from omnigraph.pipelines.file.yaml_value import read_value, undecodable
from omnigraph.schema import compile_schema
from omnigraph.strict_yaml import Location
from omnigraph.syntax import SourceError
from omnigraph.syntax.grammar import decode_source

_TOP: Final = ("schema", "queries", "fixtures", "tests", "expectations")
_COUNTS: Final = ("nodes", "edges")
_READS: Final = ("rows", "exactly", "plan", "error")
_MODES: Final = ("append", "merge", "overwrite")
_STRATEGIES: Final = ("row", "property")
_DOMAIN: Final = "0" * 26
"""The identity of schemas that are compiled only to be looked at."""

_KINDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    # what names the kind: further keys of the test, keys of `expect`
    "query": (("params", "snapshot", "exactly"), _READS),
    "query_text": (("params", "snapshot", "exactly"), _READS),
    "mutate": (("params", "then"), ("affected_nodes", "affected_edges", *_COUNTS, "error")),
    "load": (("mode", "then"), (*_COUNTS, "error")),
    "ours": (("theirs", "strategy", "then"), ("conflicts", *_COUNTS, "error")),
    "apply": (("allow_data_loss", "then"), ("steps", *_COUNTS, "error")),
    "pipeline": (("sources", "then"), (*_COUNTS, "rejected", "error")),
}
_TARGETS: Final[dict[str, Callable[[str], ReadTarget]]] = {
    "branch": ReadTarget.branch,
    "commit": ReadTarget.commit,
    "tag": ReadTarget.tag,
}


def load_test_file(path: Path) -> TestFile:
    """Read a test file, or raise with everything that is wrong with it."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise TestFileError({str(path): (undecodable(),)}) from None
    found, diagnostics = read_test_file(text, path=path)
    if found is None:
        raise TestFileError({str(path): diagnostics})
    return found


def load_test_files(paths: Iterable[Path]) -> tuple[TestFile, ...]:
    """Read test files, or raise with everything that is wrong with all of them."""
    found: list[TestFile] = []
    broken: dict[str, tuple[Diagnostic, ...]] = {}
    for path in paths:
        try:
            found.append(load_test_file(path))
        except TestFileError as error:
            broken |= error.found
    if broken:
        raise TestFileError(broken)
    return tuple(found)


def read_test_file(text: str, *, path: Path) -> tuple[TestFile | None, tuple[Diagnostic, ...]]:
    """Read the text of a test file; None if it has errors. Relative paths begin at its folder."""
    locations: dict[str, Location] = {}
    findings = Findings(locations)
    value = read_value(text, locations, findings)
    if value is None:
        return None, findings.sorted
    found = _Reader(Shape(value, "", findings), path).read()
    return (None if findings.has_errors else found), findings.sorted


class _Reader:
    """Reads the parts of a file, one after the other."""

    def __init__(self, shape: Shape, path: Path) -> None:
        self._shape = shape
        self._findings = shape.findings
        self._path = path
        self._folder = path.parent
        self._registry = Registry(())
        self._fixtures: dict[str, Fixture] = {}
        self._names: frozenset[str] = frozenset()

    def read(self) -> TestFile | None:
        top = self._shape.entries(optional=_TOP)
        if top is None:
            return None
        if "tests" not in top and "expectations" not in top:
            message = "'tests' is missing: the file has neither tests nor expectations"
            self._findings.error("missing_key", "", message)
        schema = self._schema(top["schema"]) if "schema" in top else None
        self._read_queries(top.get("queries"))
        if "fixtures" in top:
            shapes = top["fixtures"].members() or {}
            self._fixtures = {name: self._fixture(one) for name, one in shapes.items()}
        tests = self._tests(top["tests"]) if "tests" in top else ()
        if "schema" not in top and self._needs_schema(tests):
            message = "'schema' is missing: only fixtures of a graph bring their own"
            self._findings.error("missing_key", "tests", message, at_key=True)
        contracts = read_contracts(top["expectations"]) if "expectations" in top else ()
        return TestFile(self._path, schema, self._registry, self._fixtures, tests, contracts)

    def _needs_schema(self, tests: tuple[DataTest, ...]) -> bool:
        used = [
            None if test.fixture is None else self._fixtures.get(test.fixture) for test in tests
        ]
        return any(not isinstance(fixture, SampledFixture) for fixture in used)

    # -- files ------------------------------------------------------------------------------------

    def _file(self, shape: Shape) -> Path | None:
        """Return the path of a file that is there."""
        name = shape.text()
        if not name:
            return None
        found = self._folder / name
        if not found.is_file():
            shape.wrong(f"there is no file {found}", "not_found")
            return None
        return found

    def _schema(self, shape: Shape) -> SourceText | None:
        path = self._file(shape)
        if path is None:
            return None
        try:
            source = decode_source(path.read_bytes(), str(path), "S")
            compile_schema(source, domain=_DOMAIN)
        except SourceError as error:
            self._add_source_error("bad_schema", shape, error)
            return None
        return source

    def _read_queries(self, shape: Shape | None) -> None:
        if shape is None:
            return
        paths = [path for item in shape.items() if (path := self._file(item)) is not None]
        try:
            self._registry = load_queries(paths)
        except SourceError as error:
            self._add_source_error("bad_gq", shape, error)
        except OmnigraphError as error:
            shape.wrong(str(error), "bad_gq")

    def _add_source_error(self, code: str, shape: Shape, error: SourceError) -> None:
        for one in error.diagnostics:
            at = one.position
            where = f"{one.source.name}:{at.line}:{at.column}"
            shape.wrong(f"{where}: {one.headline} [{one.code}]", code)

    # -- fixtures ---------------------------------------------------------------------------------

    def _fixture(self, shape: Shape) -> Fixture:
        if isinstance(shape.value, list):
            return RowsFixture(json_objects(shape))
        entries = shape.entries(required=("graph",), optional=("at", "sample", "seed"))
        if entries is None or "graph" not in entries:
            return RowsFixture()
        graph = entries["graph"].text()
        if "://" not in graph:
            graph = str(self._folder / graph)
        target = self._target(entries["at"]) if "at" in entries else ReadTarget.branch("main")
        seed = entries["seed"].whole_number() if "seed" in entries else 0
        sample: dict[str, int] = {}
        follow: tuple[str, ...] = ()
        for name, one in (entries["sample"].members() or {} if "sample" in entries else {}).items():
            if name == "follow":
                follow = tuple(item.text() for item in one.items())
            else:
                sample[name] = one.whole_number() or 0
        if follow and not sample:
            entries["sample"].wrong("'follow' begins at nodes: name a node type and a number")
        return SampledFixture(graph, target, sample, follow, seed or 0)

    def _target(self, shape: Shape) -> ReadTarget:
        kind, colon, name = shape.text().partition(":")
        if kind not in _TARGETS or not colon or not name:
            shape.wrong("expected branch:NAME, tag:NAME or commit:ID")
            return ReadTarget.branch("main")
        return _TARGETS[kind](name)

    # -- tests ------------------------------------------------------------------------------------

    def _tests(self, shape: Shape) -> tuple[DataTest, ...]:
        found: list[DataTest] = []
        seen: set[str] = set()
        for item in shape.items():
            test = self._test(item)
            if test is None:
                continue
            if test.name in seen:
                item.wrong(f"another test is named '{test.name}'", "repeated_name")
            seen.add(test.name)
            found.append(test)
        return tuple(found)

    def _test(self, shape: Shape) -> DataTest | None:
        members = shape.members()
        if members is None:
            return None
        named = [kind for kind in _KINDS if kind in members]
        common = ("fixture", "expect")
        if len(named) != 1:
            every = dict.fromkeys(
                key for kind, (keys, _) in _KINDS.items() for key in (kind, *keys)
            )
            shape.entries(required=("name",), optional=(*common, *every))
            known = ", ".join("ours with theirs" if kind == "ours" else kind for kind in _KINDS)
            shape.wrong(f"expected one of {known}", "missing_key")
            return None
        [kind] = named
        further, expected = _KINDS[kind]
        needed = (kind, "theirs") if kind == "ours" else (kind,)
        optional = (*common, *(key for key in further if key not in needed))
        entries = shape.entries(required=("name", *needed), optional=optional)
        if entries is None:
            return None
        act = self._act(kind, entries)
        wanted = self._wanted(entries, expected, shape)
        then = self._thens(entries["then"]) if "then" in entries else ()
        if wanted is None and not then:
            shape.wrong(self._nothing_expected(kind), "missing_key")
        if act is None or "name" not in entries:
            return None
        at = self._findings.locations.get(shape.path)
        return DataTest(
            entries["name"].text(),
            1 if at is None else at.value.line,
            act,
            wanted or Wanted(),
            self._fixture_name(entries.get("fixture")),
            then,
        )

    @staticmethod
    def _nothing_expected(kind: str) -> str:
        either = (
            "'expect' or 'snapshot'" if kind in ("query", "query_text") else "'expect' or 'then'"
        )
        return f"{either} is missing: the test expects nothing"

    def _fixture_name(self, shape: Shape | None) -> str | None:
        if shape is None:
            return None
        name = shape.text()
        if name and name not in self._fixtures:
            message = f"no fixture is named '{name}'{did_you_mean(name, tuple(self._fixtures))}"
            shape.wrong(message, "unknown_name")
        return name

    # -- acts -------------------------------------------------------------------------------------

    def _act(self, kind: str, entries: Mapping[str, Shape]) -> Act | None:
        readers: dict[str, Callable[[Mapping[str, Shape]], Act | None]] = {
            "query": self._ask,
            "query_text": self._ask,
            "mutate": self._mutate,
            "load": self._load,
            "ours": self._merge,
            "apply": self._apply,
            "pipeline": self._pipeline,
        }
        return readers[kind](entries)

    @staticmethod
    def _load(entries: Mapping[str, Shape]) -> Load:
        mode = entries["mode"].choice(_MODES) if "mode" in entries else None
        return Load(json_objects(entries["load"]), mode or "append")

    def _merge(self, entries: Mapping[str, Shape]) -> Merge | None:
        if "theirs" not in entries:
            return None
        strategy = entries["strategy"].choice(_STRATEGIES) if "strategy" in entries else None
        ours, theirs = self._side(entries["ours"]), self._side(entries["theirs"])
        return Merge(ours, theirs, strategy or "row")

    def _apply(self, entries: Mapping[str, Shape]) -> Apply | None:
        schema = self._schema(entries["apply"])
        loses = entries["allow_data_loss"].is_true() if "allow_data_loss" in entries else False
        return None if schema is None else Apply(schema, loses)

    def _pipeline(self, entries: Mapping[str, Shape]) -> RunPipeline | None:
        path = self._file(entries["pipeline"])
        sources = entries["sources"].members() or {} if "sources" in entries else {}
        rows = {name: json_objects(one) for name, one in sources.items()}
        return None if path is None else RunPipeline(path, rows)

    def _ask(self, entries: Mapping[str, Shape]) -> Ask:
        params = json_object(entries["params"]) if "params" in entries else {}
        if "query" in entries:
            return Ask(self._query_name(entries["query"], mutates=False), None, params)
        return Ask(None, entries["query_text"].text(), params)

    def _mutate(self, entries: Mapping[str, Shape]) -> Mutate:
        params = json_object(entries["params"]) if "params" in entries else {}
        return Mutate(self._query_name(entries["mutate"], mutates=True), params)

    def _side(self, shape: Shape) -> Load | Mutate:
        """Return what one side of a merge does: rows that are merged in, or a mutation."""
        if isinstance(shape.value, list):
            return Load(json_objects(shape), "merge")
        entries = shape.entries(required=("mutate",), optional=("params",))
        if entries is None or "mutate" not in entries:
            return Load(())
        return self._mutate(entries)

    def _query_name(self, shape: Shape, *, mutates: bool) -> str:
        name = shape.text()
        known = {stored.name: stored for stored in self._registry.queries}
        if name and name not in known:
            end = did_you_mean(name, known) if known else "; 'queries' names files of queries"
            shape.wrong(f"no query is named '{name}'{end}", "unknown_name")
        elif name and known[name].query.is_mutation != mutates:
            remedy = (
                "'query' reads; use 'mutate'" if not mutates else "'mutate' writes; use 'query'"
            )
            shape.wrong(f"query '{name}' {'reads' if mutates else 'writes'}: {remedy}")
        return name

    # -- expectations -----------------------------------------------------------------------------

    def _wanted(
        self, entries: Mapping[str, Shape], known: tuple[str, ...], shape: Shape
    ) -> Wanted | None:
        snapshot = entries.get("snapshot")
        if "expect" not in entries:
            if snapshot is None:
                return None
            exactly = "exactly" in entries and entries["exactly"].is_true()
            return Wanted(snapshot=self._folder / snapshot.text(), exactly=exactly)
        if snapshot is not None:
            shape.wrong("a snapshot is all that is expected: leave 'expect' out", "unknown_key")
        found = entries["expect"].entries(optional=known)
        if found is None:
            return Wanted()
        if "exactly" in entries:
            message = "'exactly' stands beside 'rows'"
            self._findings.error("unknown_key", entries["exactly"].path, message, at_key=True)
        has_unknown = _has_unknown(entries["expect"], found)
        return self._expected(found, entries["expect"], has_unknown=has_unknown)

    def _thens(self, shape: Shape) -> tuple[Then, ...]:
        shapes = list(shape.items()) if isinstance(shape.value, list) else [shape]
        found = [self._then(one) for one in shapes]
        return tuple(one for one in found if one is not None)

    def _then(self, shape: Shape) -> Then | None:
        entries = shape.entries(optional=("query", "query_text", "params", *_READS))
        if entries is None:
            return None
        if ("query" in entries) == ("query_text" in entries):
            shape.wrong("expected one of 'query' and 'query_text'", "missing_key")
            return None
        expected = {key: one for key, one in entries.items() if key in _READS}
        has_unknown = _has_unknown(shape, entries)
        return Then(self._ask(entries), self._expected(expected, shape, has_unknown=has_unknown))

    def _expected(self, found: Mapping[str, Shape], shape: Shape, *, has_unknown: bool) -> Wanted:
        """Return what is expected; an error excludes everything else, and nothing is a mistake."""
        what = [key for key in found if key != "exactly"]
        if not what and not has_unknown:
            shape.wrong("nothing is expected", "missing_key")
        if "error" in found and len(what) > 1:
            shape.wrong("an error excludes everything else")
        return Wanted(
            error=found["error"].text() if "error" in found else None,
            rows=json_objects(found["rows"]) if "rows" in found else None,
            exactly="exactly" in found and found["exactly"].is_true(),
            plan=self._plan(found["plan"]) if "plan" in found else None,
            nodes=_counts(found.get("nodes")),
            edges=_counts(found.get("edges")),
            affected_nodes=_number(found.get("affected_nodes")),
            affected_edges=_number(found.get("affected_edges")),
            conflicts=_conflicts(found["conflicts"]) if "conflicts" in found else None,
            steps=_texts(found["steps"]) if "steps" in found else None,
            rejected=_number(found.get("rejected")),
        )

    @staticmethod
    def _plan(shape: Shape) -> PlanWanted:
        entries = shape.entries(optional=("uses_index", "scans"))
        if not entries:
            if entries is not None:
                shape.wrong("expected 'uses_index', 'scans' or both", "missing_key")
            return PlanWanted()
        uses = entries.get("uses_index")
        indexes = None
        if uses is not None:
            indexes = _texts(uses) if isinstance(uses.value, list) else (uses.text(),)
        return PlanWanted(indexes, _texts(entries["scans"]) if "scans" in entries else None)


def _has_unknown(shape: Shape, known: Mapping[str, Shape]) -> bool:
    """Whether a map has keys that were reported already, so that nothing more is said of it."""
    return isinstance(shape.value, dict) and len(shape.value) > len(known)


def _counts(shape: Shape | None) -> dict[str, int]:
    members = {} if shape is None else shape.members() or {}
    return {name: one.whole_number() or 0 for name, one in members.items()}


def _number(shape: Shape | None) -> int | None:
    return None if shape is None else shape.whole_number()


def _texts(shape: Shape) -> tuple[str, ...]:
    return tuple(item.text() for item in shape.items())


def _conflicts(shape: Shape) -> tuple[dict[str, object], ...]:
    found: list[dict[str, object]] = []
    for item in shape.items():
        entries = item.entries(optional=("type", "id", "kind", "message")) or {}
        found.append({key: one.text() for key, one in entries.items()})
    return tuple(found)
