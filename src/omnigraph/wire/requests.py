"""Bodies and query strings of HTTP requests, by the names of their OpenAPI components.

`T | None = None` may be absent or null; `T = value` may be absent and not null. Unknown fields are
ignored where the contract says so, and refused elsewhere (`forbid_unknown_fields`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

LoadMode = Literal["merge", "append", "overwrite"]
Kind = Literal["node", "edge"]
Op = Literal["insert", "update", "delete"]


class QueryRequest(msgspec.Struct):
    """A read query of a text."""

    query: str
    name: str | None = None
    params: Any = None
    branch: str | None = None
    snapshot: str | None = None
    tag: str | None = None
    at: int | None = None
    explain: bool = False
    profile: bool = False
    timeout_ms: int | None = None
    max_rows: int | None = None
    strict_params: bool = False


class ReadRequest(msgspec.Struct):
    """The older spelling of `QueryRequest`."""

    query_source: str
    query_name: str | None = None
    params: Any = None
    branch: str | None = None
    snapshot: str | None = None


class ChangeRequest(msgspec.Struct):
    """A mutation query of a text; `query_source` and `query_name` are older spellings."""

    query: str | None = None
    query_source: str | None = None
    name: str | None = None
    query_name: str | None = None
    params: Any = None
    branch: str | None = None
    message: str | None = None
    properties: dict[str, str] | None = None
    retries: int = 0


class InvokeStoredQueryRequest(msgspec.Struct):
    """Parameters of a stored query."""

    params: Any = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    strict_params: bool = False
    message: str | None = None
    properties: dict[str, str] | None = None
    retries: int = 0


class SchemaApplyRequest(msgspec.Struct):
    """The schema that a graph is to have."""

    schema_source: str
    branch: str | None = None
    allow_data_loss: bool = False
    message: str | None = None
    properties: dict[str, str] | None = None


class IngestRequest(msgspec.Struct):
    """Records to load, as lines of JSON in one string."""

    data: str
    branch: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: LoadMode | None = None


class LoadQuery(msgspec.Struct):
    """The query string of a load whose body is the records."""

    branch: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: LoadMode | None = None


class LoadOptionsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string of a load with options; `properties` is a JSON object of strings."""

    branch: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: LoadMode | None = None
    expected_head: str | None = None
    message: str | None = None
    properties: str | None = None
    job: str | None = None
    embed: Literal["missing", "all", "off"] = "missing"
    on_duplicate: Literal["error", "last", "first", "combine"] = "error"
    edges: Literal["match", "add"] | None = None
    # Not optional: in a query string the word `null` would be read as None.
    missing: Literal["keep", "null"] | UnsetType = UNSET
    cascade: bool = False
    dry_run: bool = False


class BranchCreateRequest(msgspec.Struct):
    """A branch to create."""

    name: str
    from_: str | None = msgspec.field(default=None, name="from")


class BranchMergeRequest(msgspec.Struct):
    """A branch to merge into another one."""

    source: str
    target: str | None = None
    delete_branch: bool = False
    dry_run: bool = False
    strategy: Literal["row", "property"] = "row"
    prefer: Literal["source", "target"] | None = None
    schema: Literal["source", "target"] | None = None
    allow_data_loss: bool = False
    resolutions: list[dict[str, Any]] | None = None
    message: str | None = None
    properties: dict[str, str] | None = None
    retries: int = 0


class BranchQuery(msgspec.Struct):
    """The query string of a route that reads a branch."""

    branch: str | None = None


class CommitsQuery(msgspec.Struct):
    """The query string of a list of commits."""

    branch: str | None = None
    limit: int | None = None
    before: str | None = None


class CommitChangesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string of the changes of a commit."""

    page_token: str | None = None
    limit: int | None = None
    kind: list[Kind] = []
    type: list[str] = []
    op: list[Op] = []


class ChangesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string of a poll of the change feed."""

    branch: str | None = None
    cursor: str | None = None
    start: str | None = None
    page_token: str | None = None
    limit: int | None = None
    kind: list[Kind] = []
    type: list[str] = []
    op: list[Op] = []
    schema_changes: Literal["refuse", "deliver"] = "refuse"


class ChangeBaselineRequest(msgspec.Struct):
    """Which branch to capture, and what of it."""

    branch: str | None = None
    kind: list[Kind] = []
    type: list[str] = []
    op: list[Op] = []


class ExportRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which state to export, and which types of it; none named means all."""

    branch: str | None = None
    type_names: list[str] = []
    snapshot: str | None = None
    tag: str | None = None
    at: int | None = None


class BlobQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string that selects one Blob value."""

    entity: Kind
    type: str
    id: str
    property: str
    branch: str | None = None
    snapshot: str | None = None
    tag: str | None = None
    at: int | None = None


# -- beyond the reference -------------------------------------------------------------------------


class TagCreateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A commit to name, by default the head of `main`."""

    name: str
    graph_commit_id: str | None = None


class DiffQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string of a difference: two refs, and which changes are wanted."""

    from_: str = msgspec.field(name="from")
    to: str
    limit: int | None = None
    page_token: str | None = None
    kind: list[Kind] = []
    type: list[str] = []
    op: list[Op] = []


class SchemaDiffQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string of a difference of schemas: two refs."""

    from_: str = msgspec.field(name="from")
    to: str


class ConflictsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query string of the conflicts that a merge would have."""

    source: str
    target: str | None = None
    strategy: Literal["row", "property"] = "row"
    limit: int | None = None
    page_token: str | None = None


class RevertRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Where to undo a commit."""

    branch: str | None = None
    prefer: Literal["source", "target"] | None = None
    message: str | None = None
    properties: dict[str, str] | None = None
    retries: int = 0
