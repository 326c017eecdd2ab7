"""Where a graph lives, and how to reach it.

Roots are local paths, `file://`, `s3://` (or `s3a://`), `gs://` and `az://`. Everything under a
root is named by a *path*: segments joined by `/`, relative to the root, never starting with `/`.

Options for a cloud root come from the caller and, for those that it does not give, from
the environment. They are normalised once into the spelling that Lance and obstore share, so both
always talk to the same endpoint with the same credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import InvalidLocationError
from omnigraph.texts import has_control, is_encodable

Scheme = Literal["file", "s3", "gs", "az"]

_SCHEMES: Final[dict[str, Scheme]] = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
}

_S3_KEYS: Final[dict[str, str]] = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "token": "aws_session_token",
    "region": "aws_region",
    "default_region": "aws_region",
    "endpoint": "aws_endpoint",
    "endpoint_url": "aws_endpoint",
    "endpoint_url_s3": "aws_endpoint",
    "s3_endpoint": "aws_endpoint",
    "virtual_hosted_style_request": "aws_virtual_hosted_style_request",
    "s3_force_path_style": "aws_s3_force_path_style",
    "skip_signature": "aws_skip_signature",
    "allow_http": "allow_http",
}
"""Spellings that mean the same; an `aws_` prefix is dropped before the look-up."""

_S3_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ALLOW_HTTP",
    "AWS_S3_FORCE_PATH_STYLE",
    "AWS_SKIP_SIGNATURE",
)
"""Read in this order; a later variable that means the same wins."""

_ENDPOINT: Final = "aws_endpoint"
_SERVICE_ENDPOINT: Final = "AWS_ENDPOINT_URL_S3"
_PATH_STYLE: Final = "aws_s3_force_path_style"
_VIRTUAL_HOSTED: Final = "aws_virtual_hosted_style_request"
_KNOWN_PATHS: Final = 1_024
_UNCLEAN: Final = "expected names joined by single slashes"
_HALF_URL: Final = re.compile(r"(?:file|s3a?|gs|az|https?):/(?!/)", re.IGNORECASE)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Root:
    """The directory or bucket prefix under which a graph lives."""

    scheme: Scheme
    bucket: str
    """Bucket or container; empty for local roots."""
    prefix: str
    """Absolute directory for local roots, key prefix without slashes at its ends otherwise."""

    @property
    def is_local(self) -> bool:
        """Whether the root is a directory of this machine."""
        return self.scheme == "file"

    @property
    def uri(self) -> str:
        """The root as one string: a plain path for local roots, a URL otherwise."""
        if self.is_local:
            return self.prefix
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def join(self, path: str) -> str:
        """Return the full name of a path under this root."""
        return f"{self.uri.rstrip('/')}/{checked_path(path)}"

    def local_path(self, path: str = "") -> Path:
        """Return the file-system path of something under a local root."""
        if not self.is_local:
            raise InvalidLocationError(path=self.uri, reason="it is not on this machine")
        return Path(self.prefix) / checked_path(path) if path else Path(self.prefix)

    def __str__(self) -> str:
        return self.uri


def parse_root(text: str | os.PathLike[str]) -> Root:
    """Parse a root.

    >>> parse_root("s3a://lake/brain.omni/").uri
    's3://lake/brain.omni'
    >>> parse_root("file:///data/my%20graph").prefix
    '/data/my graph'
    """
    spelled = os.fspath(text)
    if not spelled.strip():
        raise InvalidLocationError(path=spelled, reason="it is empty")
    if "\0" in spelled or not is_encodable(spelled):
        raise InvalidLocationError(path=spelled, reason="it has a character that no path can have")
    if _HALF_URL.match(spelled):
        raise InvalidLocationError(path=spelled, reason="a URL has two slashes after its colon")
    if "://" not in spelled:
        return Root("file", "", os.path.abspath(Path(spelled).expanduser()))  # noqa: PTH100 - Path.resolve would follow links and rename the user's root
    if has_control(spelled):
        raise InvalidLocationError(path=spelled, reason="a URL has no control characters")
    try:
        parts = urlsplit(spelled)
    except ValueError as error:
        raise InvalidLocationError(path=spelled, reason=f"it is no URL ({error})") from None
    scheme = _SCHEMES.get(parts.scheme.lower())
    if scheme is None:
        expected = "a local path, file://, s3://, gs:// or az://"
        raise InvalidLocationError(
            path=spelled, reason=f"expected {expected}, found `{parts.scheme}://`"
        )
    if parts.query or parts.fragment:
        raise InvalidLocationError(path=spelled, reason="a root has no query and no fragment")
    if scheme == "file":
        return _local_url(spelled, host=parts.netloc, path=parts.path)
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidLocationError(path=spelled, reason="expected a bucket after `://`")
    prefix = parts.path.strip("/")
    if prefix and not is_clean_path(prefix):
        raise InvalidLocationError(path=spelled, reason=_UNCLEAN)
    return Root(scheme, parts.netloc, prefix)


def _local_url(spelled: str, *, host: str, path: str) -> Root:
    if host not in {"", "localhost"}:
        raise InvalidLocationError(path=spelled, reason="a file URL names no other machine")
    directory = unquote(path)
    if not directory.startswith("/"):
        raise InvalidLocationError(path=spelled, reason="a file URL needs an absolute path")
    return Root("file", "", os.path.normpath(directory))


def checked_path(path: str) -> str:
    """Return `path` if it is a clean path under a root.

    >>> checked_path("nodes/00ff")
    'nodes/00ff'
    """
    if not is_clean_path(path):
        raise InvalidLocationError(path=path, reason=f"{_UNCLEAN}, relative to the root")
    return path


@lru_cache(maxsize=_KNOWN_PATHS)
def is_clean_path(path: str) -> bool:
    """Whether a path is made of names joined by single slashes, none of them `.` or `..`."""
    if "\0" in path or not is_encodable(path):
        return False
    return not any(part in {"", ".", ".."} for part in path.split("/"))


def join_path(*parts: str) -> str:
    """Join path segments, leaving out empty ones.

    >>> join_path("nodes/00ff", "", "_versions")
    'nodes/00ff/_versions'
    """
    return "/".join(part.strip("/") for part in parts if part.strip("/"))


def normalise_options(
    root: Root,
    options: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Fold options and environment into the one spelling that Lance and obstore share.

    The caller's options win over the environment. Plain HTTP is allowed as soon as the endpoint
    is spelled with `http://`, which is taken as consent.
    """
    said = {_s3_key(name): value for name, value in (options or {}).items()}
    if root.scheme != "s3":
        return dict(options or {})
    found = os.environ if environment is None else environment
    _check_endpoint(root, said.get(_ENDPOINT), found.get(_SERVICE_ENDPOINT))
    merged = {_s3_key(name): found[name] for name in _S3_ENVIRONMENT if found.get(name)} | said
    path_style = merged.pop(_PATH_STYLE, None)
    if path_style is not None and _VIRTUAL_HOSTED not in said:
        merged[_VIRTUAL_HOSTED] = "false" if path_style.strip().lower() in _TRUE else "true"
    if merged.get(_ENDPOINT, "").lower().startswith("http://"):
        merged.setdefault("allow_http", "true")
    return merged


def _check_endpoint(root: Root, said: str | None, service_endpoint: str | None) -> None:
    """Refuse a contradiction that the two clients would settle differently."""
    if said and service_endpoint and said.rstrip("/") != service_endpoint.rstrip("/"):
        raise InvalidLocationError(
            path=root.uri,
            reason=f"the options name the endpoint `{said}` and {_SERVICE_ENDPOINT} names"
            f" `{service_endpoint}`; unset one of them",
        )


def _s3_key(name: str) -> str:
    lowered = name.lower()
    return _S3_KEYS.get(lowered.removeprefix("aws_"), lowered)
