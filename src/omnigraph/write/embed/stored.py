"""Vectors for rows that are stored: one commit for all types, or none when nothing is missing.

1. Rows are found by null vectors and by the records of the texts that vectors were made from;
   vectors are not read for that.
2. A change that loses a race is prepared again with the vectors that were made already, so no text
   is paid for twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.lineage import Job, Lineage, TypeCounts, runtime, type_names
from omnigraph.lineage.inputs import graph_read
from omnigraph.manifest import CommitDraft, GraphCommit, Repository, Snapshot
from omnigraph.manifest.errors import ExpectedVersionMismatchError, SchemaMovedError
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import TableKey, nearest_name
from omnigraph.recovery import WriterKind
from omnigraph.schema import Catalog, NodeType
from omnigraph.schema.catalog import EmbedSource
from omnigraph.schema.vector_key import VectorKey
from omnigraph.search.embedding.table import EmbeddingsTable, text_hashes
from omnigraph.store.errors import StagedFilesLostError
from omnigraph.store.filters import AllOf, IsNull, Negation
from omnigraph.store.records import ScanRequest
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.embed.row_embedder import EmbedMode, RowEmbedder
from omnigraph.write.mutate.pending_rows import Origin, PendingChanges
from omnigraph.write.mutate.predicates import has_value_in
from omnigraph.write.rules.validate import validate
from omnigraph.write.stage.columns import flat, is_in, slabs
from omnigraph.write.stage.delta import GraphDelta
from omnigraph.write.stage.stage_delta import stage_delta
from omnigraph.write.stage.stored_rows import StoredRows

ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.02


class NothingToEmbedError(InvalidInputError):
    """A type has no property that is filled from a text."""

    code = "OG-EMBED-TYPE"
    hint = 'add @embed("source") to a Vector property of the schema'
    template = "node type '{type_name}' has no property with @embed"
    type_name: str


class UnknownNodeTypeError(NotFoundError):
    """There is no node type of this name."""

    code = "OG-NODE-TYPE"
    template = "unknown node type '{type_name}'"
    type_name: str
    known: tuple[str, ...]

    def _hint(self) -> str:
        near = nearest_name(self.type_name, self.known)
        return f"did you mean `{near}`?" if near else f"there are: {', '.join(self.known)}"


@dataclass(frozen=True)
class EmbedRequest:
    """Which rows get vectors: of which types, and whether only where they are missing or stale."""

    incarnation: Incarnation
    types: tuple[str, ...] = ()
    mode: EmbedMode = EmbedMode.MISSING
    actor_id: str | None = None
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    job: Job = field(default=Job("python", "embed"))


@dataclass(frozen=True, repr=False)
class EmbedResult(Displayed):
    """How many rows of each type have new vectors; `commit` is None when none has."""

    branch: str
    mode: str
    model: str
    rows: tuple[tuple[str, int], ...]
    texts_sent: int
    commit: GraphCommit | None

    def _display(self) -> Display:
        title = (
            f"vectors of {self.branch} by the model '{self.model}': {self.texts_sent} texts sent"
        )
        return Display(title, ("type", "rows"), self.rows)

    @property
    def embedded_records(self) -> int:
        """How many rows have new vectors."""
        return sum(count for _, count in self.rows)

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        return {
            "branch": self.branch,
            "mode": self.mode,
            "model": self.model,
            "types": [{"name": name, "embedded_records": count} for name, count in self.rows],
            "embedded_records": self.embedded_records,
            "texts_sent": self.texts_sent,
            "commit": None if self.commit is None else self.commit.to_json(),
        }


@dataclass(frozen=True)
class StoredEmbedding:
    """Makes vectors for the stored rows of one graph."""

    repository: Repository
    committer: Committer
    table: EmbeddingsTable
    embedder: RowEmbedder
    model: str

    def run(self, request: EmbedRequest) -> EmbedResult:
        """Fill what is missing, as one commit."""
        clock = self.repository.clock
        for attempt in range(1, ATTEMPTS_MAX + 1):
            snapshot = self.repository.history.snapshot(request.incarnation)
            catalog = snapshot.catalog
            delta = self._delta(request, snapshot, catalog)
            if delta.is_empty:
                return self._result(request, catalog, delta, None)
            try:
                commit = self._commit(request, delta, snapshot, catalog)
            except (ExpectedVersionMismatchError, SchemaMovedError, StagedFilesLostError):
                if attempt == ATTEMPTS_MAX:
                    raise
                clock.sleep(clock.jitter(0.0, _PAUSE_S * 2**attempt))
            else:
                self.embedder.record()
                return self._result(request, catalog, delta, commit)
        raise AssertionError("the last attempt returns or raises")

    def _delta(self, request: EmbedRequest, snapshot: Snapshot, catalog: Catalog) -> GraphDelta:
        pending = PendingChanges(snapshot, catalog)
        for node in _chosen(catalog, request.types):
            if not snapshot.entry(node.table_key).row_count:
                continue
            ids = self._wanted(node, snapshot, request.mode)
            if len(ids):
                table = pending.node(node.name)
                rows = table.match_whole(has_value_in(("id",), ids)).stored
                table.put(rows, statement=1, origin=Origin.STORED)
        return self.embedder.filled(pending.delta(), catalog, StoredRows(snapshot))

    def _wanted(self, node: NodeType, snapshot: Snapshot, mode: EmbedMode) -> pa.Array:
        """Return the ids of rows that need a vector."""
        found: list[pa.Array] = []
        for name, embed in node.embed_sources.items():
            has_source = Negation(IsNull(embed.source))
            row_filter = has_source if mode is EmbedMode.ALL else AllOf((IsNull(name), has_source))
            request = ScanRequest(columns=("id",), row_filter=row_filter)
            found.append(flat(snapshot.open(node.table_key).scan(request).read_all()["id"]))
            if mode is not EmbedMode.ALL:
                found += self._stale(node, name, embed, snapshot)
        return pc.unique(pa.chunked_array(found, pa.utf8()))

    def _stale(
        self, node: NodeType, name: str, embed: EmbedSource, snapshot: Snapshot
    ) -> Iterator[pa.Array]:
        known = self.table.known(VectorKey.of(node, name))
        if not known.num_rows:
            return
        request = ScanRequest(
            columns=("id", embed.source), row_filter=Negation(IsNull(embed.source))
        )
        reader = snapshot.open(node.table_key).scan(request)
        for slab in slabs(reader, reader.schema):
            rows = slab.filter(pa.array(is_in(slab["id"], known["id"])))
            places = pc.index_in(rows["id"], value_set=flat(known["id"]))
            is_same = pc.and_(
                pc.equal(flat(known["text_hash"]).take(places), text_hashes(rows[embed.source])),
                pc.equal(flat(known["model"]).take(places), self.model),
            )
            yield flat(rows["id"].filter(pc.invert(is_same)))

    def _commit(
        self, request: EmbedRequest, delta: GraphDelta, snapshot: Snapshot, catalog: Catalog
    ) -> GraphCommit | None:
        clock = self.repository.clock
        validated = validate(delta, snapshot, catalog)
        operation_id = clock.ulid()
        tables = stage_delta(
            delta, snapshot, request.incarnation, self.repository, operation_id=operation_id
        )
        written = {table.table_key for table in tables}
        job = WriteJob(
            kind=WriterKind.MUTATION,
            incarnation=request.incarnation,
            operation_id=operation_id,
            draft=CommitDraft.new(
                clock,
                "embed",
                request.actor_id,
                message=request.message,
                properties={
                    **request.properties,
                    **self._lineage(request, delta, snapshot, operation_id).to_properties(),
                },
            ),
            schema_hash=snapshot.state.head.schema_hash,
            tables=tables,
            reads={key: entry for key, entry in validated.reads.items() if key not in written},
            revalidate=validated.revalidate,
        )
        return self.committer.commit(job).commit

    def _lineage(
        self, request: EmbedRequest, delta: GraphDelta, snapshot: Snapshot, operation_id: str
    ) -> Lineage:
        """Return what the commit says: rows of the graph were read, their texts became vectors."""
        root, read = self.repository.root, snapshot.commit_id
        rows = {key: table.rows.num_rows for key, table in sorted(delta.tables.items())}
        return Lineage(
            job=request.job.of_run(operation_id),
            inputs=tuple(graph_read(root, key, read, rows=rows[key]) for key in rows),
            outputs=tuple(
                TypeCounts(name, updated=rows[key]) for key, name in type_names(rows).items()
            ),
            columns={
                f"{node.name}.{name}": [f"{node.name}.{embed.source}"]
                for node in _chosen(snapshot.catalog, request.types)
                if node.table_key in rows
                for name, embed in node.embed_sources.items()
            },
            engine=runtime("local"),
        )

    def _result(
        self,
        request: EmbedRequest,
        catalog: Catalog,
        delta: GraphDelta,
        commit: GraphCommit | None,
    ) -> EmbedResult:
        counts = {TableKey(key).type_name: t.rows.num_rows for key, t in delta.tables.items()}
        chosen = [node.name for node in _chosen(catalog, request.types)]
        return EmbedResult(
            branch=str(request.incarnation.branch),
            mode=str(request.mode),
            model=self.model,
            rows=tuple((name, counts.get(name, 0)) for name in chosen),
            texts_sent=self.embedder.texts_sent,
            commit=commit,
        )


def _chosen(catalog: Catalog, types: tuple[str, ...]) -> list[NodeType]:
    for name in types:
        if name not in catalog.node_types:
            raise UnknownNodeTypeError(name, tuple(sorted(catalog.node_types)))
        if not catalog.node_types[name].embed_sources:
            raise NothingToEmbedError(name)
    wanted = sorted(types or catalog.node_types)
    return [catalog.node_types[name] for name in wanted if catalog.node_types[name].embed_sources]
