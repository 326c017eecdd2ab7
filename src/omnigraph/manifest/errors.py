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

    def __init__(self, branch: str, nearest: str | None = None) -> None:
        self.branch = branch
        self.nearest = nearest
        super().__init__(f"branch '{branch}' not found")
        self.hint = f"did you mean '{nearest}'?" if nearest else "`omnigraph branch list`"


class BranchGoneError(NotFoundError):
    """The branch that a handle was bound to has been deleted, maybe created again since."""

    code = "OG-BRANCH-GONE"

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        name = incarnation.rpartition(".")[0] or incarnation
        super().__init__(
            f"branch '{name}' has been deleted; what this handle was bound to ({incarnation})"
            " no longer exists"
        )
        self.hint = f"sync_branch({name!r}) binds to a branch that was created again"


class BranchRefusedError(InvalidInputError):
    """A branch cannot be created or deleted under this name."""

    code = "OG-BRANCH-REFUSED"
    hint = "choose another name; `omnigraph branch list` shows those that exist"

    def __init__(self, branch: str, reason: str) -> None:
        self.branch = branch
        self.reason = reason
        super().__init__(f"branch '{branch}' {reason}")


class BranchConflictError(ConflictError):
    """The state of other branches forbids this now."""

    code = "OG-BRANCH-CONFLICT"
    hint = "`omnigraph branch list` shows the branches, `omnigraph tag list` the tags"

    def __init__(self, branch: str, reason: str) -> None:
        self.branch = branch
        self.reason = reason
        super().__init__(f"branch '{branch}' {reason}")


class SchemaApplyInProgressError(ConflictError):
    """A schema change is under way."""

    code = "OG-SCHEMA-APPLY-IN-PROGRESS"
    hint = "try again when it has finished"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(f"{operation} is unavailable while schema apply is in progress")


class ExpectedVersionMismatchError(ConflictError):
    """A table is not in the state that the operation was prepared on; nothing landed.

    `expected` and `actual` are published dataset versions, 0 for an unknown table.
    `is_only_maintenance` says that nothing but maintenance has moved it: preparing again is enough.
    """

    code = "OG-EXPECTED-VERSION"
    hint = "refresh, then try again"

    def __init__(
        self, table_key: str, expected: int, actual: int, is_only_maintenance: bool = False
    ) -> None:
        self.table_key = table_key
        self.expected = expected
        self.actual = actual
        self.is_only_maintenance = is_only_maintenance
        super().__init__(
            f"{table_key} has moved: expected published version {expected}, found {actual};"
            " nothing was published"
        )


class SchemaMovedError(ConflictError):
    """The schema has changed since the operation was prepared; nothing landed."""

    code = "OG-SCHEMA-MOVED"
    hint = "refresh, then try again"

    def __init__(self, expected: str, actual: str) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(f"the schema has changed: expected {expected}, found {actual}")


class PreconditionFailedError(PreconditionError):
    """The head of the branch is not the one that the caller named; nothing landed."""

    code = "OG-PRECONDITION"
    hint = "read the branch again and decide from its new head"

    def __init__(self, expected: str, actual: str) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(f"the head of the branch is {actual}, not {expected}")


class CommitSettledError(ConflictError):
    """Recovery has settled this operation: its commit id is taken."""

    code = "OG-COMMIT-SETTLED"
    hint = "`omnigraph log` shows what is published; a voided write can be run again"

    def __init__(self, commit_id: str, is_published: bool) -> None:
        self.commit_id = commit_id
        self.is_published = is_published
        what = "has been published already" if is_published else "was voided by recovery"
        super().__init__(f"commit {commit_id} {what}")


class PublishTimeoutError(ConflictError):
    """Other publishes were faster until the deadline; nothing landed."""

    code = "OG-PUBLISH-TIMEOUT"
    hint = "try again"

    def __init__(self, branch: str, attempts: int) -> None:
        self.branch = branch
        self.attempts = attempts
        super().__init__(f"could not publish on branch '{branch}' in {attempts} attempts")


class CommitNotFoundError(NotFoundError):
    """No live branch knows this commit."""

    code = "OG-COMMIT-NOT-FOUND"

    def __init__(self, commit_id: str) -> None:
        self.commit_id = commit_id
        super().__init__(f"commit '{commit_id}' not found")
        self.hint = "`omnigraph commit list`"


class TagNotFoundError(NotFoundError):
    """There is no tag of this name."""

    code = "OG-TAG-NOT-FOUND"

    def __init__(self, tag: str, nearest: str | None = None) -> None:
        self.tag = tag
        self.nearest = nearest
        super().__init__(f"tag '{tag}' not found")
        self.hint = f"did you mean '{nearest}'?" if nearest else "`omnigraph tag list`"


class TagExistsError(ConflictError):
    """A tag of this name exists."""

    code = "OG-TAG-EXISTS"

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"tag '{tag}' already exists")
        self.hint = f"choose another name, or forget it: `omnigraph tag delete {tag}`"


class VersionRemovedError(NotFoundError):
    """A version existed and cleanup has removed it, or it never existed."""

    code = "OG-VERSION-REMOVED"
    hint = "`omnigraph commit list` shows what can still be read"

    def __init__(self, what: str, version: int, head: int) -> None:
        self.what = what
        self.version = version
        self.head = head
        cause = "cleanup has removed it" if version < head else "it was never written"
        super().__init__(f"version {version} of {what} does not exist: {cause}")


class DatasetMissingError(CorruptError):
    """The manifest names a dataset, or a fork of one, that is not in storage."""

    code = "OG-DATASET-MISSING"
    hint = "keep the files, restore the dataset from a backup"

    def __init__(self, table_key: str, path: str, branch: str | None) -> None:
        self.table_key = table_key
        self.path = path
        self.branch = branch
        fork = "" if branch is None else f", fork {branch}"
        super().__init__(f"{table_key} is published and its dataset is missing: {path}{fork}")


class TypeNotFoundError(NotFoundError):
    """A snapshot has no such type."""

    code = "OG-TYPE-NOT-FOUND"
    hint = "`omnigraph snapshot` lists the types"

    def __init__(self, table_key: str, version: int) -> None:
        self.table_key = table_key
        self.version = version
        super().__init__(f"{table_key} does not exist at manifest version {version}")


class GraphNotFoundError(NotFoundError):
    """There is no graph at this root."""

    code = "OG-GRAPH-NOT-FOUND"

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"there is no graph at {root}")
        self.hint = f"`omnigraph init --schema FILE {root}` makes one"


class GraphExistsError(ConflictError):
    """The root is not empty enough to become a graph."""

    code = "OG-GRAPH-EXISTS"

    def __init__(self, root: str, found: str) -> None:
        self.root = root
        self.found = found
        super().__init__(f"{root} already holds {found}")
        self.hint = f"choose another root; `omnigraph snapshot {root}` shows what is there"


class FormatTooNewError(CorruptError):
    """A newer omnigraph wrote this graph."""

    code = "OG-FORMAT-TOO-NEW"
    hint = "upgrade omnigraph first"

    def __init__(self, path: str, found: str, supported: int) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        super().__init__(
            f"{path} has format {found} and this omnigraph knows up to {supported}:"
            " upgrade omnigraph first"
        )
