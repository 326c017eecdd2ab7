"""Files outside of a graph, read with Arrow: on this machine or in object storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.fs

from omnigraph.store.uri import normalise_options, parse_root

_S3_SCHEMES = ("s3://", "s3a://")


@dataclass(frozen=True)
class Location:
    """A file system, a path in it, and what precedes such a path where it is shown."""

    system: pyarrow.fs.FileSystem
    path: str
    prefix: str


def locate(uri: str, options: Mapping[str, str] | None = None) -> Location:
    """Find the file system of a URI; options and environment are those of a graph there."""
    scheme, _, rest = uri.partition("://")
    if uri.startswith(_S3_SCHEMES):
        return Location(_s3(rest.partition("/")[0], options), rest.strip("/"), f"{scheme}://")
    system, path = pyarrow.fs.FileSystem.from_uri(uri)
    return Location(system, path, f"{scheme}://")


def _s3(bucket: str, options: Mapping[str, str] | None) -> pyarrow.fs.S3FileSystem:
    settled = normalise_options(parse_root(f"s3://{bucket}"), options)
    is_public = settled.get("aws_skip_signature", "").lower() in ("1", "true", "yes", "on")
    given = {
        "access_key": settled.get("aws_access_key_id"),
        "secret_key": settled.get("aws_secret_access_key"),
        "session_token": settled.get("aws_session_token"),
        "region": settled.get("aws_region"),
        "endpoint_override": settled.get("aws_endpoint"),
    }
    return pyarrow.fs.S3FileSystem(
        anonymous=is_public, **{name: value for name, value in given.items() if value}
    )
