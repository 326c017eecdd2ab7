"""Blobs outside of the graph: read only below listed folders, and copied into the graph.

1. A URI is allowed when it lies below one of the bases, by whole path segments; `..` and empty
   segments are never followed. Nor are links that lead out of a base that is a folder here.
2. The bytes are read once, when the row is read; after that the graph has its own copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from omnigraph.errors import InvalidInputError, OmnigraphError, UnavailableError
from omnigraph.schema.values.blobs import blob_column
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import Mask
from omnigraph.store.connect import StoreSettings, open_objects
from omnigraph.store.objects.confined_file import leads_outside, read_confined
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.uri import is_clean_path, parse_root


class BlobSourceUnreadableError(UnavailableError):
    """An external object that a row names cannot be read; nothing was written."""

    code = "OG-BLOB-SOURCE"
    hint = "check that the object exists and may be read from here"
    template = "external blob {uri} cannot be read: {problem}"
    uri: str
    problem: str


class BlobSourceDeniedError(InvalidInputError):
    """A row that is to be copied names an object that may not be read; nothing was written."""

    code = "OG-BLOB-DENIED"
    hint = "name the places that may be read: `--external-blob-base`"
    template = (
        "{count} external blobs lie outside of the places that may be read, such as {uri}:"
        " their bytes cannot be copied"
    )
    uri: str
    count: int


class ExternalBlobs:
    """Reads external objects below some bases."""

    def __init__(
        self, bases: Sequence[str] = (), storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._bases = tuple(base.rstrip("/") + "/" for base in bases)
        self._options = dict(storage_options or {})
        self._stores: dict[str, ObjectStore] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave open stores out of the pickled form."""
        return self.__dict__ | {"_stores": {}}

    def denied(self, column: pa.Array) -> Mask:
        """Return which rows of a blob column name an object that is not allowed."""
        _, uris = column.flatten()
        denied = np.zeros(len(column), np.bool_)
        for row in np.flatnonzero(valid_mask(uris)).tolist():
            denied[row] = not self._is_allowed(uris[row].as_py())
        return denied

    def copied(self, column: pa.Array, rows: Mask) -> pa.Array:
        """Return the column with the bytes in place of the URIs of the given rows."""
        data, uris = column.flatten()
        wanted = np.flatnonzero(valid_mask(uris) & rows).tolist()
        if not wanted:
            return column
        contents, addresses = data.to_pylist(), uris.to_pylist()
        for row in wanted:
            contents[row] = self._read(addresses[row])
            addresses[row] = None
        return blob_column(
            pa.array(contents, data.type), pa.array(addresses, uris.type), valid_mask(column)
        )

    def owned(self, column: pa.Array) -> pa.Array:
        """Return the column with bytes instead of URIs; raise if a URI is not allowed."""
        denied = np.flatnonzero(self.denied(column))
        if len(denied):
            _, uris = column.flatten()
            raise BlobSourceDeniedError(uris[denied[0]].as_py(), len(denied))
        return self.copied(column, np.ones(len(column), np.bool_))

    def _is_allowed(self, uri: str) -> bool:
        base = self._base_of(uri)
        if base is None:
            return False
        root = parse_root(base)
        return not root.is_local or not leads_outside(root.local_path(), _path_in(base, uri))

    def _base_of(self, uri: str) -> str | None:
        for base in self._bases:
            rest = uri.removeprefix(base)
            if rest != uri and is_clean_path(unquote(rest)):
                return base
        return None

    def _read(self, uri: str) -> bytes:
        base = self._base_of(uri)
        if base is None:
            raise BlobSourceUnreadableError(uri, "it is not below an allowed base")
        try:
            return self._content(base, _path_in(base, uri))
        except OmnigraphError as error:
            raise BlobSourceUnreadableError(uri, str(error)) from error

    def _content(self, base: str, path: str) -> bytes:
        root = parse_root(base)
        if root.is_local:
            return read_confined(root.local_path(), path)
        if base not in self._stores:
            self._stores[base] = open_objects(StoreSettings(root, self._options))
        return self._stores[base].get(path).data


def _path_in(base: str, uri: str) -> str:
    return unquote(uri.removeprefix(base))
