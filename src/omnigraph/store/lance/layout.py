"""Where Lance keeps its files, as far as we must know it.

```
<location>/                     one dataset
  _versions/<2^64-1-v>.manifest   version v (the newest sorts first)
  _versions/d<v>.manifest         a detached version: in no lineage
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

from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from omnigraph.store.records import OperationKind
from omnigraph.store.uri import join_path

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


def max_fragment_id(manifest: bytes) -> int | None:
    """Return the highest fragment id that a dataset has ever used, from its serialised manifest.

    Present fragments do not show it: the newest may be deleted, and its id must not be reused,
    because indexes still name it.
    """
    for field, value in _fields(manifest):
        if field == _MAX_FRAGMENT_ID_FIELD and isinstance(value, int):
            return value
    return None


def transaction_summary(transaction: bytes) -> tuple[str, OperationKind]:
    """Return uuid and kind from the bytes of a transaction file."""
    uuid, kind = "", OperationKind.OTHER
    for field, value in _fields(transaction):
        if field == _TRANSACTION_UUID_FIELD and isinstance(value, bytes):
            uuid = value.decode()
        elif field >= _OPERATION_FIELD_MIN and field in _OPERATIONS:
            kind = _OPERATIONS[field]
    return uuid, kind


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the top-level fields of a protocol buffer; enough for the two look-ups above."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        field, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, position = _varint(message, position)
            yield field, value
            continue
        if wire_type == 2:
            length, position = _varint(message, position)
        else:
            length = 8 if wire_type == 1 else 4
        yield field, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
