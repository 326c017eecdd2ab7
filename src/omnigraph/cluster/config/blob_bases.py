"""The bases of external blobs that a graph may read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from omnigraph.cluster.config.model import AllowedBase
from omnigraph.cluster.desired import BlobBase
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.store.blob_bases import InvalidBlobBaseError, blob_base
from omnigraph.strict_yaml import quoted
from omnigraph.texts import redacted

_SCHEMES: Final = frozenset({"s3", "file"})


def load_blob_bases(
    allowed: Sequence[AllowedBase], path: str
) -> tuple[tuple[BlobBase, ...], list[Diagnostic]]:
    """Return the bases in one spelling, sorted by URI and scope, and what is wrong with them."""
    bases: list[BlobBase] = []
    found: list[Diagnostic] = []
    for index, item in enumerate(allowed):
        try:
            bases.append(BlobBase(_uri(item), item.scope))
        except InvalidBlobBaseError as problem:
            message = f"{quoted(redacted(item.base))}: {problem.problem}"
            where = f"{path}.allow[{index}].base"
            found.append(error("invalid_external_blob_base", where, message))
    ordered = tuple(sorted(bases, key=lambda base: (base.uri, base.scope)))
    return ordered, [*found, *_overlaps(ordered, path)]


def _uri(item: AllowedBase) -> str:
    if item.base.strip().partition("://")[0].lower() not in _SCHEMES:
        raise InvalidBlobBaseError(item.base, "expected an absolute URL of s3:// or file://")
    uri = blob_base(item.base)
    if item.scope == "server_safe" and uri.startswith("file://"):
        reason = "a server reads no files of its machine; use `scope: embedded_only`"
        raise InvalidBlobBaseError(item.base, reason)
    return uri


def _overlaps(bases: Sequence[BlobBase], path: str) -> Iterator[Diagnostic]:
    """Find bases that contain one another; they are sorted, and all of them end in a slash."""
    outer: BlobBase | None = None
    for base in bases:
        if outer is None or not base.uri.startswith(outer.uri):
            outer = base
            continue
        place = "stands twice" if base.uri == outer.uri else f"lies in {quoted(outer.uri)}"
        message = f"{quoted(base.uri)} {place}; keep one of them"
        yield error("invalid_external_blob_policy", path, message)
