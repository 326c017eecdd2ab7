"""A package of tables from outside becomes one commit of a graph, exactly once.

1. The package is the job of the commit's lineage: `{namespace, name, run_id}`. A package whose
   job the branch has already is not loaded again; the publish itself checks this, so two
   processes cannot both load it.
2. Tables of one mode are one load. Tables of several modes are loaded onto a branch of the package,
   which is merged as one commit and removed. Nodes that are added come before edges. A process
   that finds the branch changed by another one gives up: what is merged is the whole package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.graph import (
    BranchNotFoundError,
    CommitLog,
    CommitPages,
    CommitTerms,
    Graph,
    Job,
    all_commits,
    read_lineage,
)
from omnigraph.schema import Catalog, EdgeType, EntityType

MODES: Final = {"append": "append", "merge": "merge", "replace": "overwrite"}
"""Modes of a load, by disposition."""
_ORDER: Final = (
    *(("append", False), ("merge", False), ("overwrite", False)),
    *(("overwrite", True), ("merge", True), ("append", True)),
)
"""Modes and whether they load edges: replaced nodes and edges next to each other, as one load."""
_MERGES_MAX: Final = 5
"""So often a merge is tried again when other writers have moved the branch."""


class TableMapError(InvalidInputError):
    """The map from tables to types does not fit the tables or the graph."""

    code = "OG-TABLE-MAP"
    hint = "map each table to a type, or to None to leave it out"
    template = "table '{table}': {problem}"
    table: str
    problem: str


class PackageLandedError(ConflictError):
    """The package was loaded before, or by another process at the same time; nothing is lost."""

    code = "OG-PACKAGE-LANDED"
    hint = "nothing is to be done: the rows of the package are in the graph"
    template = "package '{run_id}' of '{name}' is in commit {commit}"
    name: str
    run_id: str
    commit: str


@dataclass(frozen=True)
class TableTarget:
    """The type that rows of a table become, and where their values come from."""

    type_name: str
    columns: Mapping[str, str] | None = None
    """Columns by property; None takes the columns that are named as properties, or `id`."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """The columns of `src` and `dst`."""


@dataclass(frozen=True)
class PackageTable:
    """A table of a package: parquet files; one may have columns that another one lacks."""

    name: str
    mode: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """Tables that are loaded together, and whose they are."""

    namespace: str
    name: str
    run_id: str
    tables: tuple[PackageTable, ...]

    @property
    def job(self) -> Job:
        """What the lineage of the commit states."""
        return Job(self.namespace, self.name, run_id=self.run_id)


def read_targets(
    table_map: Mapping[str, str | Mapping[str, object] | None],
) -> dict[str, TableTarget | None]:
    """Return the targets of tables; a text is the name of a type.

    >>> read_targets({"people": "Person", "log": None})["people"].type_name
    'Person'
    """
    return {name: _target(name, value) for name, value in table_map.items()}


def _target(table: str, value: str | Mapping[str, object] | None) -> TableTarget | None:
    if value is None or isinstance(value, str):
        return None if value is None else TableTarget(value)
    unknown = set(value) - {"node", "edge", "src", "dst", "map"}
    kinds = [kind for kind in ("node", "edge") if kind in value]
    if unknown or len(kinds) != 1:
        found = ", ".join(map(repr, sorted(unknown))) or "neither or both"
        raise TableMapError(table, f"expected node or edge, src, dst and map; found {found}")
    ends = {end: str(value[end]) for end in ("src", "dst") if end in value}
    columns = value.get("map")
    if columns is not None and not isinstance(columns, Mapping):
        raise TableMapError(table, "'map' is no map of columns by property")
    named = None if columns is None else {str(key): str(name) for key, name in columns.items()}
    return TableTarget(str(value[kinds[0]]), named, ends)


# -- loading --------------------------------------------------------------------------------------


def load_package(
    graph: Graph,
    branch: str,
    package: Package,
    targets: Mapping[str, TableTarget | None],
    *,
    actor_id: str | None = None,
) -> str | None:
    """Load a package; return its commit, None if no table of it is loaded."""
    catalog = graph.schema.catalog()
    parts = [
        _Part(table, *_typed(table, targets, catalog))
        for table in package.tables
        if table.name not in targets or targets[table.name] is not None
    ]
    if not parts:
        return None
    loading = _Loading(graph, branch, package, actor_id)
    try:
        return loading.load(parts)
    except PackageLandedError as landed:
        return landed.commit


@dataclass(frozen=True)
class _Part:
    table: PackageTable
    target: TableTarget
    entity_type: EntityType

    @property
    def place(self) -> int:
        return _ORDER.index((self.table.mode, isinstance(self.entity_type, EdgeType)))

    def rows(self) -> pa.RecordBatchReader:
        """Return the columns that the type takes, under their names there."""
        paths = list(self.table.files)
        schemas = [pq.read_schema(path) for path in paths]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        files = ds.dataset(paths, schema=schema, format="parquet")
        known = {*self.entity_type.properties, "id"}
        columns = self.target.columns
        if columns is None:
            columns = {name: name for name in files.schema.names if name in known}
        columns = {**columns, **self.target.ends}
        for name, column in columns.items():
            if column not in files.schema.names:
                found = ", ".join(files.schema.names)
                raise TableMapError(
                    self.table.name, f"'{name}' needs column '{column}'; it has {found}"
                )
        selected = {name: ds.field(column) for name, column in columns.items()}
        return files.scanner(columns=selected).to_reader()


def _together(parts: Sequence[_Part]) -> pa.RecordBatchReader | pa.Table:
    """Return the rows of tables that become one type; a column that one has not is null."""
    if len(parts) == 1:
        return parts[0].rows()
    return pa.concat_tables([part.rows().read_all() for part in parts], promote_options="default")


def _typed(
    table: PackageTable, targets: Mapping[str, TableTarget | None], catalog: Catalog
) -> tuple[TableTarget, EntityType]:
    target = targets.get(table.name)
    if target is None:
        raise TableMapError(table.name, "the map has no type for it")
    name = target.type_name
    found = catalog.node_types.get(name) or catalog.lookup_edge(name)
    if found is None:
        raise TableMapError(table.name, f"the graph has no type '{name}'")
    missing = {"src", "dst"} - set(target.ends)
    if isinstance(found, EdgeType) and missing:
        ends = {end: target.ends.get(end, end) for end in ("src", "dst")}
        target = TableTarget(name, target.columns, ends)
    elif target.ends and not isinstance(found, EdgeType):
        raise TableMapError(table.name, f"'{name}' is a node: it has no src and dst")
    return target, found


@dataclass(frozen=True)
class _Loading:
    graph: Graph
    branch: str
    package: Package
    actor_id: str | None

    def load(self, parts: Sequence[_Part]) -> str:
        self._require_new_in(partial(self.graph.commits.list, self.branch))
        ordered = sorted(parts, key=lambda part: part.place)
        groups = [list(group) for _, group in groupby(ordered, key=lambda one: one.table.mode)]
        by_mode = {part.table.mode for part in parts}
        if len(by_mode) == 1:
            return self._load(self.graph.on_terms(self._terms), ordered, self.branch)
        return self._load_and_merge(groups)

    def _load_and_merge(self, groups: Sequence[Sequence[_Part]]) -> str:
        own = f"{self.package.namespace}/{self.package.name}/{self.package.run_id}"
        branches = self.graph.branches
        with suppress(BranchNotFoundError):
            branches.delete(own, actor_id=self.actor_id)
        branches.create_from(self.branch, own, actor_id=self.actor_id)
        head = self.graph.commits.head_id(own)
        try:
            # Without a change of rows there would be nothing to merge.
            stating = CommitTerms(lambda _: None, lambda _: {}, commits_unchanged=True)
            for group in groups:
                head = self._load(self.graph.on_terms(stating), group, own, head=head)
            merged = self.graph.on_terms(replace(self._terms, merged_commit=head)).branches.merge(
                own,
                self.branch,
                message=self._message,
                actor_id=self.actor_id,
                job=self.package.job,
                retries=_MERGES_MAX,
            )
        finally:
            self._remove(own, head)
        assert merged.commit is not None  # noqa: S101 - the branch has a commit of each load
        return merged.commit.graph_commit_id

    def _remove(self, own: str, head: str) -> None:
        """Remove the branch of the package, unless another process works on it."""
        with suppress(BranchNotFoundError):
            if self.graph.commits.head_id(own) == head:
                self.graph.branches.delete(own, actor_id=self.actor_id)

    def _load(
        self, graph: Graph, parts: Sequence[_Part], branch: str, *, head: str | None = None
    ) -> str:
        by_type: dict[str, list[_Part]] = {}
        for part in parts:
            by_type.setdefault(part.entity_type.table_key, []).append(part)
        done = graph.load(
            {key: _together(of_type) for key, of_type in by_type.items()},
            mode=parts[0].table.mode,
            branch=branch,
            expected_head=head,
            message=self._message,
            job=self.package.job,
            actor_id=self.actor_id,
        )
        assert done.commit is not None  # noqa: S101 - a load on these terms commits
        return done.commit.graph_commit_id

    @property
    def _message(self) -> str:
        return f"{self.package.namespace} {self.package.name}, package {self.package.run_id}"

    @property
    def _terms(self) -> CommitTerms:
        return CommitTerms(self._require_new, lambda _: {}, commits_unchanged=True)

    def _require_new(self, log: CommitLog) -> None:
        self._require_new_in(log.commits)

    def _require_new_in(self, pages: CommitPages) -> None:
        for commit in all_commits(pages):
            lineage = read_lineage(commit.properties)
            if lineage is not None and lineage.job == self.package.job:
                raise PackageLandedError(
                    self.package.name, self.package.run_id, commit.graph_commit_id
                )
