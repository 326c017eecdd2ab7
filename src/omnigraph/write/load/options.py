"""What a caller asks of a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.lineage import Job
from omnigraph.lineage.inputs import Described
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import BranchName
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.write.commit.terms import CommitTerms
from omnigraph.write.load.rows.spool import MEMORY_MAX
from omnigraph.write.stage.delta import WriteMode


class LoadOptionsError(InvalidInputError):
    """Options of a load do not go together."""

    code = "OG-LOAD-OPTIONS"
    hint = "`omnigraph load --help` lists the options"
    template = "{problem}"
    problem: str


class RowsTiedError(InvalidInputError):
    """Several rows of one id are to be ordered, and are equal in all columns of the order."""

    code = "OG-LOAD-TIE"
    hint = "order the rows by a column in which they differ"
    template = "{type_name} '{entity_id}' has several rows that are equal in {columns}"
    type_name: str
    entity_id: str
    columns: str


class OnError(StrEnum):
    """What happens when rows break rules."""

    FAIL = "fail"
    """Nothing is loaded."""
    QUARANTINE = "quarantine"
    """They are left out, and written to a directory."""


class EdgeIdentity(StrEnum):
    """What an edge without an id means in a merge."""

    MATCH = "match"
    """The stored edge that it stands for, if there is one (`match_edges.py`)."""
    ADD = "add"
    """A new edge."""


class OnDuplicate(StrEnum):
    """What happens in a merge when several rows have one id."""

    ERROR = "error"
    LAST = "last"
    """The last one wins."""
    FIRST = "first"
    """The first one wins."""
    COMBINE = "combine"
    """Each property takes the last value that a record gives it."""


class Missing(StrEnum):
    """What happens in a merge to properties of stored rows that the input does not name."""

    KEEP = "keep"
    """They stay as they are."""
    NULL = "null"
    """They become their `@default`, or null."""


class NullCells(StrEnum):
    """What a null in a table means."""

    NULL = "null"
    """The value null."""
    KEEP = "keep"
    """The same as a column that is not there."""


@dataclass(frozen=True)
class LoadOptions:
    """How and where to load."""

    mode: WriteMode
    target: Incarnation | BranchName
    """An incarnation, or a branch name to look up, or to create with `from_branch`."""
    from_branch: BranchName | None = None
    actor_id: str | None = None
    expected_head: str | None = None
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """Stored in the commit next to its message."""
    job: Job = field(default=Job("python", "load"))
    described: Described = field(default_factory=Described)
    """What is read, for the lineage of the commit."""
    conversion: ConversionMode = ConversionMode.STRICT
    on_error: OnError = OnError.FAIL
    quarantine: Path | None = None
    """The directory of rejected rows."""
    max_errors: int | None = None
    """A load with more bad rows fails, whatever `on_error` says."""
    on_duplicate: OnDuplicate = OnDuplicate.ERROR
    missing: Missing | None = None
    """None means `keep`, and `null` with the compatible reader."""
    null_cells: NullCells = NullCells.NULL
    order_by: tuple[str, ...] = ()
    """The columns by which rows without an order of their own are ordered."""
    edges: EdgeIdentity | None = None
    """What edges without an id mean in a merge; None is what the reader means by them."""
    cascade: bool = False
    """Whether an overwrite also removes the stored edges of nodes that it removes."""
    is_dry_run: bool = False
    """Whether everything is checked and counted, and nothing written."""
    external_blob_bases: tuple[str, ...] = ()
    persists_topology: bool = False
    """Whether a first load of edges also stores their adjacency, which takes memory per edge."""
    terms: CommitTerms | None = None
    """What the commit depends on, in addition to its rows."""
    memory_max: int = MEMORY_MAX
    """How many bytes a load keeps in memory; the rest is spilled to files."""

    @property
    def keeps_absent(self) -> bool:
        """Whether properties of stored rows stay as they are where the input does not name them."""
        if self.mode is not WriteMode.MERGE:
            return False
        if self.missing is None:
            return self.conversion is ConversionMode.STRICT
        return self.missing is Missing.KEEP

    @property
    def tracks_absent(self) -> bool:
        """Whether it matters which properties a record does not name."""
        return self.keeps_absent or self.on_duplicate is OnDuplicate.COMBINE

    @property
    def folds(self) -> bool:
        """Whether several records of one id become one."""
        return self.on_duplicate is not OnDuplicate.ERROR

    @property
    def matches_edges(self) -> bool:
        """Whether edges without an id stand for stored ones."""
        if self.mode is not WriteMode.MERGE:
            return False
        if self.edges is None:
            return self.conversion is ConversionMode.STRICT
        return self.edges is EdgeIdentity.MATCH

    @property
    def quarantines(self) -> bool:
        """Whether rows that break a rule are left out instead of failing the load."""
        return self.on_error is OnError.QUARANTINE

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.quarantines != (self.quarantine is not None):
            raise LoadOptionsError(
                "`on_error='quarantine'` and a quarantine directory go together: give both or none"
            )
        if self.folds and self.mode is not WriteMode.MERGE:
            raise LoadOptionsError(f"`on_duplicate='{self.on_duplicate}'` is for mode `merge`")
        if self.missing is Missing.KEEP and self.mode is not WriteMode.MERGE:
            raise LoadOptionsError("`missing='keep'` is for mode `merge`")
        if self.edges is not None and self.mode is not WriteMode.MERGE:
            raise LoadOptionsError(
                "`edges` is for mode `merge`: other modes add every edge that has no id"
            )
        if self.cascade and self.mode is not WriteMode.OVERWRITE:
            raise LoadOptionsError("`cascade` is for mode `overwrite`: other modes remove no nodes")
        if self.max_errors is not None and self.max_errors < 0:
            raise LoadOptionsError(f"max_errors is {self.max_errors}; expected 0 or more")
