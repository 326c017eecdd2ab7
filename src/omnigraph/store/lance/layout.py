"""Where Lance keeps its files, as far as we must know it.

```
<location>/                     one dataset
  _versions/<2^64-1-v>.manifest   version v (the newest sorts first)
  _versions/d<v>.manifest         a detached version: in no lineage
  _versions/<a>-<b>-<hex>.pack    old versions from a to b; ours, Lance does not know it
  _transactions/<base>-<uuid>.txn what a commit did
  data/<name>.lance               rows; blobs that do not fit lie in data/<name>/*.blob
  _deletions/<fragment>-<base>-<number>.(arrow|bin)
  _indices/<uuid>/…               one segment of an index
  _refs/branches/<name>.json      branches, slashes percent-encoded; _refs/tags/ alike
  tree/<branch>/…                 a branch: the same layout again
```

Flushing, checking staged files and removing a torn head need these names; everything else goes
through the library. Tests compare every line of the drawing with the installed release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from omnigraph.store.errors import CorruptObjectError
from omnigraph.store.lance.messages import message_fields
from omnigraph.store.records import OperationKind
from omnigraph.store.uri import Root, join_path

VERSIONS_DIR: Final = "_versions"
_KNOWN_PATHS: Final = 1_024
_VERSION_MAX: Final = 2**64 - 1
_MANIFEST_SUFFIX: Final = ".manifest"
_MAGIC: Final = b"LANC"
_FOOTER_BYTES: Final = 16
_PAGE_BYTES: Final = 4096
_V2_MIN: Final = 2**63
"""Names below are of the older naming scheme, or version numbers no dataset reaches."""

_MAX_FRAGMENT_ID_FIELD: Final = 11
_NEXT_ROW_ID_FIELD: Final = 14
_TIMESTAMP_FIELD: Final = 7
_RANGE_FIELD: Final = 1
"""The kind of a segment of row ids that has no gaps."""
_RUN_VERSION_FIELD: Final = 2
_TRANSACTION_UUID_FIELD: Final = 2
_OPERATIONS: Final[dict[int, OperationKind]] = {
    100: OperationKind.APPEND,
    101: OperationKind.DELETE,
    102: OperationKind.OVERWRITE,
    103: OperationKind.CREATE_INDEX,
    104: OperationKind.REWRITE,
    105: OperationKind.MERGE,
    106: OperationKind.RESTORE,
    107: OperationKind.RESERVE,
    108: OperationKind.UPDATE,
    109: OperationKind.PROJECT,
    110: OperationKind.METADATA,
    113: OperationKind.CLONE,
}
_OPERATION_FIELD_MIN: Final = 100


def lineage_path(location: str, branch: str | None) -> str:
    """Return the directory of a dataset's lineage.

    >>> lineage_path("nodes/00ff", "etl.01JC")
    'nodes/00ff/tree/etl.01JC'
    """
    return location if branch is None else join_path(location, "tree", branch)


@lru_cache(maxsize=_KNOWN_PATHS)
def manifest_path(location: str, branch: str | None, version: int) -> str:
    """Return the file that is version `version`; detached ones have very large numbers."""
    name = f"d{version}" if version >= _V2_MIN else str(_VERSION_MAX - version)
    name += _MANIFEST_SUFFIX
    return join_path(lineage_path(location, branch), VERSIONS_DIR, name)


def manifest_version(file_name: str) -> int | None:
    """Return the version that a file of `_versions` is, or `None` for other files.

    >>> manifest_version("18446744073709551612.manifest")
    3
    >>> manifest_version("latest_version_hint.json") is None
    True
    """
    stem = file_name.removesuffix(_MANIFEST_SUFFIX)
    if stem == file_name or not stem.isdecimal():
        return None
    number = int(stem)
    return _VERSION_MAX - number if _V2_MIN <= number <= _VERSION_MAX else None


def is_torn(manifest: bytes) -> bool:
    """Whether a version file was cut off by a power failure: its end, or a whole page, is missing.

    A file with all its pages and a proper end that cannot be read is something else: damage, or the
    work of a newer release. It must not be treated as one that was never complete.
    """
    if len(manifest) < _FOOTER_BYTES or not manifest.endswith(_MAGIC):
        return True
    pages = range(0, len(manifest) - _PAGE_BYTES + 1, _PAGE_BYTES)
    return any(not any(manifest[start : start + _PAGE_BYTES]) for start in pages)


def transaction_path(location: str, branch: str | None, *, read_version: int, uuid: str) -> str:
    """Return the transaction file of a commit."""
    name = transaction_name(read_version, uuid)
    return join_path(lineage_path(location, branch), "_transactions", name)


def transaction_name(read_version: int, uuid: str) -> str:
    """Return the name of a transaction's file, by which the version that it made refers to it."""
    return f"{read_version}-{uuid}.txn"


def data_path(location: str, branch: str | None, file_name: str) -> str:
    """Return a data file of a lineage."""
    return join_path(lineage_path(location, branch), "data", file_name)


def index_path(location: str, branch: str | None, *, uuid: str, file_name: str) -> str:
    """Return a file of an index segment."""
    return join_path(lineage_path(location, branch), "_indices", uuid, file_name)


def branch_ref_path(location: str, name: str) -> str:
    """Return the file that makes a branch exist.

    >>> branch_ref_path("t", "team/etl.01JC")
    't/_refs/branches/team%2Fetl.01JC.json'
    """
    return join_path(branch_refs_directory(location), f"{quote(name, safe='')}.json")


def branch_refs_directory(location: str) -> str:
    """Return the directory of the files that make branches exist."""
    return join_path(location, "_refs", "branches")


def tag_refs_directory(location: str) -> str:
    """Return the directory of the files that make tags exist."""
    return join_path(location, "_refs", "tags")


def branch_of_ref(path: str) -> str:
    """Return the branch that a file makes exist.

    >>> branch_of_ref("t/_refs/branches/team%2Fetl.01JC.json")
    'team/etl.01JC'
    """
    return unquote(path.rpartition("/")[2].removesuffix(".json"))


def tag_ref_path(location: str, name: str) -> str:
    """Return the file that makes a tag exist."""
    return join_path(tag_refs_directory(location), f"{name}.json")


def relative_to_root(base: str, root: Root) -> str:
    """Return a directory that Lance names in full as a path under the root."""
    spelled = base.split("://", maxsplit=1)[-1].strip("/")
    top = root.uri.split("://", maxsplit=1)[-1].strip("/")
    if not spelled.startswith(f"{top}/"):
        # With a name read wrongly, needed files would be deleted.
        raise CorruptObjectError(
            path=base, reason=f"the dataset refers to files outside of `{root.uri}`"
        )
    return spelled.removeprefix(f"{top}/")


def max_fragment_id(manifest: bytes) -> int | None:
    """Return the highest fragment id that a dataset has ever used, from its serialised manifest.

    Present fragments do not show it: the newest may be deleted, and its id must not be reused,
    because indexes still name it.
    """
    for field, _, value in message_fields(manifest):
        if field == _MAX_FRAGMENT_ID_FIELD and isinstance(value, int):
            return value
    return None


def next_row_id(manifest: bytes) -> int:
    """Return the row id that the next new row gets, from a serialised manifest."""
    for field, _, value in message_fields(manifest):
        if field == _NEXT_ROW_ID_FIELD and isinstance(value, int):
            return value
    return 0


def oldest_version(runs: bytes) -> int:
    """Return the lowest number of a serialised list of versions, one per row in runs.

    >>> oldest_version(bytes([10, 8, 10, 4, 10, 2, 16, 5, 16, 7]))
    7
    """
    versions = []
    for run in message_fields(runs):
        if not isinstance(run.value, bytes):
            return 0
        numbers = {field.field: field.value for field in message_fields(run.value)}
        version = numbers.get(_RUN_VERSION_FIELD, 0)
        versions.append(version if isinstance(version, int) else 0)
    return min(versions, default=0)


def manifest_timestamp_us(manifest: bytes) -> int:
    """Return when a version was made, from its serialised manifest, in microseconds."""
    for field, _, value in message_fields(manifest):
        if field == _TIMESTAMP_FIELD and isinstance(value, bytes):
            parts = {part.field: part.value for part in message_fields(value)}
            seconds, nanoseconds = parts.get(1, 0), parts.get(2, 0)
            if isinstance(seconds, int) and isinstance(nanoseconds, int):
                return seconds * 1_000_000 + nanoseconds // 1_000
    return 0


def transaction_summary(transaction: bytes) -> tuple[str, OperationKind]:
    """Return uuid and kind from the bytes of a transaction file."""
    uuid, kind = "", OperationKind.OTHER
    for field, _, value in message_fields(transaction):
        if field == _TRANSACTION_UUID_FIELD and isinstance(value, bytes):
            uuid = value.decode()
        elif field >= _OPERATION_FIELD_MIN and field in _OPERATIONS:
            kind = _OPERATIONS[field]
    return uuid, kind


def row_id_range(sequence: bytes) -> tuple[int, int] | None:
    """Return first and last + 1 of a serialised sequence of row ids; None if it has gaps.

    >>> row_id_range(bytes([10, 6, 10, 4, 16, 160, 141, 6]))
    (0, 100000)
    """
    segments = [field.value for field in message_fields(sequence)]
    if len(segments) != 1 or not isinstance(segments[0], bytes):
        return None
    kinds = list(message_fields(segments[0]))
    if len(kinds) != 1 or kinds[0].field != _RANGE_FIELD or not isinstance(kinds[0].value, bytes):
        return None
    ends = {field.field: field.value for field in message_fields(kinds[0].value)}
    first, last = ends.get(1, 0), ends.get(2, 0)
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None
