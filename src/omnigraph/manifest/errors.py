"""What can be wrong with branches, commits and publishes."""

from __future__ import annotations

from omnigraph.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
)


class BranchNotFoundError(NotFoundError):
    """There is no branch of this name."""

    code = "OG-BRANCH-NOT-FOUND"
    template = "branch '{branch}' not found"
    branch: str
    nearest: str | None = None

    def _hint(self) -> str:
        return f"did you mean '{self.nearest}'?" if self.nearest else "`omnigraph branch list`"


class BranchGoneError(NotFoundError):
    """The branch that a handle was bound to has been deleted, maybe created again since."""

    code = "OG-BRANCH-GONE"
    incarnation: str

    def _message(self) -> str:
        return (
            f"branch '{self._name}' has been deleted; what this handle was bound to"
            f" ({self.incarnation}) no longer exists"
        )

    def _hint(self) -> str:
        return f"sync_branch({self._name!r}) binds to a branch that was created again"

    @property
    def _name(self) -> str:
        return self.incarnation.rpartition(".")[0] or self.incarnation


class BranchRefusedError(InvalidInputError):
    """A branch cannot be created or deleted under this name."""

    code = "OG-BRANCH-REFUSED"
    hint = "choose another name; `omnigraph branch list` shows those that exist"
    template = "branch '{branch}' {reason}"
    branch: str
    reason: str


class BranchConflictError(ConflictError):
    """The state of other branches forbids this now."""

    code = "OG-BRANCH-CONFLICT"
    hint = "`omnigraph branch list` shows the branches, `omnigraph tag list` the tags"
    template = "branch '{branch}' {reason}"
    branch: str
    reason: str


class SchemaApplyInProgressError(ConflictError):
    """A schema change is under way."""

    code = "OG-SCHEMA-APPLY-IN-PROGRESS"
    hint = "try again when it has finished"
    template = "{operation} is unavailable while schema apply is in progress"
    operation: str


class ExpectedVersionMismatchError(ConflictError):
    """A table is not in the state that the operation was prepared on; nothing landed.

    `expected` and `actual` are published dataset versions, 0 for an unknown table.
    `is_only_maintenance` says that nothing but maintenance has moved it: preparing again is enough.
    """

    code = "OG-EXPECTED-VERSION"
    hint = "refresh, then try again"
    template = (
        "{table_key} has moved: expected published version {expected}, found {actual};"
        " nothing was published"
    )
    table_key: str
    expected: int
    actual: int
    is_only_maintenance: bool = False


class SchemaMovedError(ConflictError):
    """The schema has changed since the operation was prepared; nothing landed."""

    code = "OG-SCHEMA-MOVED"
    hint = "refresh, then try again"
    template = "the schema has changed: expected {expected}, found {actual}"
    expected: str
    actual: str


class CounterMovedError(ConflictError):
    """Another process has reserved numbers since the counter was read; nothing landed."""

    code = "OG-IDENTITY-COUNTER"
    hint = "try again"
    template = "the identity counter has moved: expected {expected}, found {actual}"
    expected: int
    actual: int


class PreconditionFailedError(PreconditionError):
    """The head of the branch is not the one that the caller named; nothing landed."""

    code = "OG-PRECONDITION"
    hint = "read the branch again and decide from its new head"
    template = "the head of the branch is {actual}, not {expected}"
    expected: str
    actual: str


class CommitSettledError(ConflictError):
    """Recovery has settled this operation: its commit id is taken."""

    code = "OG-COMMIT-SETTLED"
    hint = "`omnigraph log` shows what is published; a voided write can be run again"
    commit_id: str
    is_published: bool

    def _message(self) -> str:
        what = "has been published already" if self.is_published else "was voided by recovery"
        return f"commit {self.commit_id} {what}"


class PublishTimeoutError(ConflictError):
    """Other publishes were faster until the deadline; nothing landed."""

    code = "OG-PUBLISH-TIMEOUT"
    hint = "try again"
    template = "could not publish on branch '{branch}' in {attempts} attempts"
    branch: str
    attempts: int


class CommitNotFoundError(NotFoundError):
    """No live branch knows this commit."""

    code = "OG-COMMIT-NOT-FOUND"
    hint = "`omnigraph commit list`"
    template = "commit '{commit_id}' not found"
    commit_id: str


class TagNotFoundError(NotFoundError):
    """There is no tag of this name."""

    code = "OG-TAG-NOT-FOUND"
    template = "tag '{tag}' not found"
    tag: str
    nearest: str | None = None

    def _hint(self) -> str:
        return f"did you mean '{self.nearest}'?" if self.nearest else "`omnigraph tag list`"


class TagExistsError(ConflictError):
    """A tag of this name exists."""

    code = "OG-TAG-EXISTS"
    hint = "choose another name, or forget it: `omnigraph tag delete {tag}`"
    template = "tag '{tag}' already exists"
    tag: str


class VersionRemovedError(NotFoundError):
    """A version existed and cleanup has removed it, or it never existed."""

    code = "OG-VERSION-REMOVED"
    hint = "`omnigraph commit list` shows what can still be read"
    what: str
    version: int
    head: int

    def _message(self) -> str:
        cause = "cleanup has removed it" if self.version < self.head else "it was never written"
        return f"version {self.version} of {self.what} does not exist: {cause}"


class DatasetMissingError(CorruptError):
    """The manifest names a dataset, or a fork of one, that is not in storage."""

    code = "OG-DATASET-MISSING"
    hint = "keep the files, restore the dataset from a backup"
    table_key: str
    path: str
    branch: str | None

    def _message(self) -> str:
        fork = "" if self.branch is None else f", fork {self.branch}"
        return f"{self.table_key} is published and its dataset is missing: {self.path}{fork}"


class TypeNotFoundError(NotFoundError):
    """A snapshot has no such type."""

    code = "OG-TYPE-NOT-FOUND"
    hint = "`omnigraph snapshot` lists the types"
    template = "{table_key} does not exist at manifest version {version}"
    table_key: str
    version: int


class GraphNotFoundError(NotFoundError):
    """There is no graph at this root."""

    code = "OG-GRAPH-NOT-FOUND"
    hint = "`omnigraph init --schema FILE {root}` makes one"
    template = "there is no graph at {root}"
    root: str


class GraphExistsError(ConflictError):
    """The root is not empty enough to become a graph."""

    code = "OG-GRAPH-EXISTS"
    hint = "choose another root; `omnigraph snapshot {root}` shows what is there"
    template = "{root} already holds {found}"
    root: str
    found: str


class FormatTooNewError(CorruptError):
    """A newer omnigraph wrote this graph."""

    code = "OG-FORMAT-TOO-NEW"
    hint = "upgrade omnigraph first"
    template = (
        "{path} has format {found} and this omnigraph knows up to {supported}:"
        " upgrade omnigraph first"
    )
    path: str
    found: str
    supported: int


class ProcessBoundError(InvalidInputError):
    """What belongs to its process was to be copied, or sent to another process."""

    code = "OG-PROCESS-BOUND"
    hint = "open the graph there: `Graph.open(uri)`; ids and results of queries can be sent"
    template = "{what} belongs to its process: it cannot be pickled or copied"
    what: str
