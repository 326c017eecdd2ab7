"""One Blob cell of one snapshot: what it is, and its bytes a bounded part at a time.

1. Nothing is read to describe a cell but the row's own description of the blob.
2. An external value is never fetched: its address is an answer, its bytes are not.
3. A range is checked before anything is opened, and clamped to the end of the value; one that
   starts at or after the end cannot be satisfied. The whole of an empty value can be read.
4. The tag of a cell is the same for as long as the published version of its dataset is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from omnigraph.errors import CorruptError, InvalidInputError, NotFoundError
from omnigraph.manifest import Snapshot
from omnigraph.names import nearest_name
from omnigraph.schema import Catalog, EntityType
from omnigraph.store import DatasetHandle
from omnigraph.store.filters import Comparison
from omnigraph.store.records import ROW_ID, ScanRequest

EntityKind: TypeAlias = Literal["node", "edge"]
BlobKind: TypeAlias = Literal["managed", "external"]

BYTES_AT_ONCE: Final = 4 << 20
_OFFSET_MAX: Final = 2**64 - 1
_TAG_DIGITS: Final = 32


@dataclass(frozen=True)
class BlobSelector:
    """Which cell: kind and name of a type, id of an entity, name of a Blob property."""

    entity: EntityKind
    type_name: str
    entity_id: str
    property_name: str

    @property
    def table_key(self) -> str:
        """The name of the dataset in the manifest."""
        return f"{self.entity}:{self.type_name}"

    def __str__(self) -> str:
        return f"{self.property_name} of {self.entity} {self.type_name} '{self.entity_id}'"

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "entity": self.entity,
            "type": self.type_name,
            "id": self.entity_id,
            "property": self.property_name,
        }


# -- errors ---------------------------------------------------------------------------------------


class BlobSelectorError(InvalidInputError):
    """A selector names a type or a property that the schema does not declare as such."""

    code = "OG-BLOB-SELECTOR"
    template = "{problem}"
    problem: str
    hint: str


class BlobNotFoundError(NotFoundError):
    """There is no such entity, or its property is null."""

    code = "OG-BLOB-NOT-FOUND"
    hint = "`omnigraph export --type {selector.type_name}` shows ids and values"
    selector: BlobSelector
    is_null: bool

    def _message(self) -> str:
        cell = self.selector
        null = f"has no {cell.property_name}: it is null"
        problem = null if self.is_null else "was not found"
        return f"the {cell.entity} {cell.type_name} '{cell.entity_id}' {problem}"


class BlobRangeError(InvalidInputError):
    """A range is empty, too large for a number of 64 bits, or after the end of the value.

    `start` and `end` are half-open; `length` is that of the value, None if it was not looked at.
    """

    code = "OG-BLOB-RANGE"
    template = "{problem}"
    start: int
    end: int | None
    length: int | None
    problem: str

    def _hint(self) -> str:
        return _satisfiable(self.length)

    @property
    def details(self) -> dict[str, object]:
        """The range that was asked for, and the length of the value."""
        return {"blob_range": {"start": self.start, "end": self.end, "length": self.length}}


def _satisfiable(length: int | None) -> str:
    if length is None:
        return "give a length from 1 on, and an end below 2^64"
    if length == 0:
        return "leave the range away: the value is empty"
    return f"give an offset from 0 to {length - 1}"


class ExternalBlobError(InvalidInputError):
    """The value is the address of an object outside of the graph, which is never fetched."""

    code = "OG-BLOB-EXTERNAL"
    hint = "`omnigraph blob stat` shows the address; fetch it with a client of that place"
    template = "{selector} is external and never fetched from here: {uri}"
    selector: BlobSelector
    uri: str


class RangedExternalBlobError(CorruptError):
    """A stored value is a part of an external object, which no write of omnigraph makes."""

    code = "OG-BLOB-RANGED"
    hint = "load the entity again with a whole object, or with its bytes"
    template = "{selector} is a part of the external object {uri}"
    selector: BlobSelector
    uri: str


# -- ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByteRange:
    """A number of bytes from an offset; without a length, all up to the end.

    >>> ByteRange(offset=3).within(10), ByteRange(length=4).within(10)
    (range(3, 10), range(0, 4))
    >>> ByteRange(offset=8, length=100).within(10)
    range(8, 10)
    """

    offset: int | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        start, end = self.offset or 0, self._end
        if start < 0 or start > _OFFSET_MAX or (end is not None and end > _OFFSET_MAX):
            problem = f"a range from byte {start} to byte {end} does not fit into 64 bits"
            raise BlobRangeError(start=start, end=end, length=None, problem=problem)
        if self.length is not None and self.length < 1:
            problem = f"a range of {self.length} bytes reads nothing"
            raise BlobRangeError(start=start, end=end, length=None, problem=problem)

    @property
    def _end(self) -> int | None:
        return None if self.length is None else (self.offset or 0) + self.length

    def within(self, size: int) -> range:
        """Return the selected bytes of a value of this size."""
        start = self.offset or 0
        if self.offset is None and self.length is None:
            return range(size)
        end = size if self._end is None else self._end
        if start >= size:
            problem = f"a range from byte {start} is not satisfiable: the value has {size} bytes"
            raise BlobRangeError(start=start, end=end, length=size, problem=problem)
        return range(start, min(end, size))


# -- cells ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlobStat:
    """What a cell holds: bytes of the graph with size and tag, or the address of an object."""

    selector: BlobSelector
    kind: BlobKind
    snapshot_id: str
    """The commit that was read."""
    size: int | None = None
    etag: str | None = None
    uri: str | None = None


class Blob:
    """One cell that is not null."""

    def __init__(self, stat: BlobStat, handle: DatasetHandle, row_id: int) -> None:
        self.stat = stat
        self._handle = handle
        self._row_id = row_id

    def chunks(self, wanted: ByteRange | None = None) -> Iterator[bytes]:
        """Yield the bytes of a range, by default all, in parts of at most 4 MiB.

        A value that cannot be read raises before the first part.
        """
        if self.stat.uri is not None or self.stat.size is None:
            raise ExternalBlobError(self.stat.selector, self.stat.uri or "")
        part = (wanted or ByteRange()).within(self.stat.size)
        return self._parts(part)

    def read(self) -> bytes:
        """Return all bytes at once."""
        return b"".join(self.chunks())

    def _parts(self, part: range) -> Iterator[bytes]:
        if not part:
            return
        selector = self.stat.selector
        content = self._handle.open_blob(selector.property_name, self._row_id)
        if content is None:
            raise BlobNotFoundError(selector, is_null=True)
        for start in range(part.start, part.stop, BYTES_AT_ONCE):
            yield content.read(start, min(BYTES_AT_ONCE, part.stop - start))


def find_blob(snapshot: Snapshot, selector: BlobSelector) -> Blob:
    """Look one cell up by the id of its entity."""
    number = _property_number(snapshot.catalog, selector)
    handle = snapshot.open(selector.table_key)
    found = handle.scan(
        ScanRequest(
            columns=(selector.property_name,),
            row_filter=Comparison("id", "=", selector.entity_id),
            with_row_id=True,
            limit=1,
        )
    ).read_all()
    if not found.num_rows:
        raise BlobNotFoundError(selector, is_null=False)
    described = found[selector.property_name][0].as_py()
    if described is None:
        raise BlobNotFoundError(selector, is_null=True)
    row_id = found[ROW_ID][0].as_py()
    stat = describe(snapshot, selector, described, cell=f"{number}\0{row_id}")
    return Blob(stat, handle, row_id)


def describe(
    snapshot: Snapshot, selector: BlobSelector, described: dict[str, Any], *, cell: str
) -> BlobStat:
    """Interpret the stored description of a blob; `cell` identifies it within its table."""
    uri = described["blob_uri"]
    if not uri:
        tag = _tag(snapshot, selector, cell)
        return BlobStat(selector, "managed", snapshot.commit_id, described["size"], tag)
    if described["position"] or described["size"]:
        raise RangedExternalBlobError(selector, uri)
    return BlobStat(selector, "external", snapshot.commit_id, uri=uri)


def _tag(snapshot: Snapshot, selector: BlobSelector, cell: str) -> str:
    """Name one stored value: two that differ never share a tag.

    The transaction distinguishes versions with the same number on different lineages.
    """
    entry = snapshot.entry(selector.table_key)
    [transaction] = snapshot.datasets.transactions(
        entry.location,
        branch=entry.table_branch,
        first=entry.table_version,
        last=entry.table_version,
    )
    parts = (entry.location, entry.table_version, transaction.uuid, cell)
    digest = hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()
    return f'"{digest[:_TAG_DIGITS]}"'


def _property_number(catalog: Catalog, selector: BlobSelector) -> int | None:
    """Return the number of a Blob property, which survives renames."""
    types: dict[str, EntityType] = dict(
        catalog.node_types if selector.entity == "node" else catalog.edge_types
    )
    entity_type = types.get(selector.type_name)
    if entity_type is None:
        raise BlobSelectorError(
            f"there is no {selector.entity} type '{selector.type_name}'",
            _instead(selector.type_name, list(types), what=f"{selector.entity} type"),
        )
    if selector.property_name not in entity_type.blob_properties:
        found = entity_type.properties.get(selector.property_name)
        problem = "is no property" if found is None else f"is {found.prop_type}, not Blob"
        where = f"{selector.entity} type '{selector.type_name}'"
        raise BlobSelectorError(
            f"'{selector.property_name}' of {where} {problem}",
            _instead(
                selector.property_name, list(entity_type.blob_properties), what="Blob property"
            ),
        )
    return entity_type.properties[selector.property_name].property_id


def _instead(name: str, known: list[str], *, what: str) -> str:
    near = nearest_name(name, known)
    if near is not None:
        return f"did you mean '{near}'?"
    return f"there are {', '.join(sorted(known))}" if known else f"it has no {what}"
