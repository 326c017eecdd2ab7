"""Catalog blobs: the applied texts of queries, policies and pipelines, named by their hash.

A blob is never replaced by another content and never deleted. Its name says what it must hold, so
every read compares: one that holds something else is reported, and written again by `apply`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from omnigraph.cluster.addresses import Address, Kind
from omnigraph.cluster.stored.root import FOLDER, StorageRoot
from omnigraph.errors import OmnigraphError
from omnigraph.store.errors import ObjectNotFoundError

BlobState: TypeAlias = Literal["present", "missing", "mismatch", "unreadable"]

EXTENSIONS: Final = {Kind.QUERY: "gq", Kind.POLICY: "yaml", Kind.PIPELINE: "yaml"}
"""The kinds that have blobs, and how their names end."""


@dataclass(frozen=True)
class Blob:
    """What was found where a blob should be; `content` is set only if it is what it should be."""

    state: BlobState
    path: str
    content: bytes = b""
    message: str = ""

    @property
    def is_present(self) -> bool:
        """Whether it is there and has the content that its name says."""
        return self.state == "present"


def digest_of(content: bytes) -> str:
    """Return the name of a content."""
    return sha256(content).hexdigest()


def has_blob(address: Address) -> bool:
    """Whether the content of a resource is kept as a blob."""
    return address.kind in EXTENSIONS


def blob_path(address: Address, digest: str) -> str:
    """Return where a blob lies under the storage root.

    >>> from omnigraph.cluster.addresses import query_address
    >>> blob_path(query_address("papers", "by_doi"), "ab12")
    '__cluster/resources/query/papers/by_doi/ab12.gq'
    """
    names = "/".join(address.names)
    return f"{FOLDER}/resources/{address.kind}/{names}/{digest}.{EXTENSIONS[address.kind]}"


def read_blob(root: StorageRoot, address: Address, digest: str) -> Blob:
    """Read a blob and compare it with its digest."""
    path = blob_path(address, digest)
    try:
        content = root.objects.get(path).data
    except ObjectNotFoundError:
        return Blob("missing", path, message=f"there is no object at {path}")
    except OmnigraphError as problem:
        return Blob("unreadable", path, message=str(problem))
    found = digest_of(content)
    if found != digest:
        message = f"{path} has the digest {found}, expected {digest}"
        return Blob("mismatch", path, message=message)
    return Blob("present", path, content)


def write_blob(root: StorageRoot, address: Address, content: bytes) -> None:
    """Write a blob, also over one of the same name that holds something else."""
    root.objects.put(blob_path(address, digest_of(content)), content)
