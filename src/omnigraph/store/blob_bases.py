"""The folders outside of a graph from which blobs may be read, in one spelling.

A base is an absolute URL of a folder. Rows name objects by text, and a URI is compared with its
base by text, so a base that could be spelled in two ways is refused or brought into one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from omnigraph.errors import InvalidInputError

_SCHEMES: Final = ("s3", "file", "gs", "az")
_BYTES_MAX: Final = 64 * 1024
_SHOWN_MAX: Final = 200


class InvalidBlobBaseError(InvalidInputError):
    """The URL of a folder for external blobs is malformed; nothing was written."""

    code = "OG-BLOB-BASE"
    hint = "give the URL of a folder, such as s3://bucket/folder/ or file:///folder/"
    base: str
    problem: str

    def _message(self) -> str:
        base = self.base
        shown = base if len(base) <= _SHOWN_MAX else f"{base[:_SHOWN_MAX]}…"
        return f"`{shown}` is no base of external blobs: {self.problem}"


def blob_bases(bases: Iterable[str]) -> tuple[str, ...]:
    """Check the bases and return them in one spelling, each once.

    >>> blob_bases(["S3://Lake/pictures"])
    ('s3://lake/pictures/',)
    """
    return tuple(sorted({blob_base(base) for base in bases}))


def blob_base(text: str) -> str:
    """Check one base and return it in one spelling, which ends in a slash."""
    problem = _problem_of_text(text)
    if problem is not None:
        raise InvalidBlobBaseError(text, problem)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise InvalidBlobBaseError(text, f"it is no URL ({error})") from None
    problem = _problem_of_parts(parts)
    if problem is not None:
        raise InvalidBlobBaseError(text, problem)
    path = parts.path.rstrip("/")
    if parts.scheme == "file" and not Path(unquote(path) or "/").is_dir():
        raise InvalidBlobBaseError(text, "there is no such folder")
    return f"{parts.scheme}://{parts.netloc.lower()}{path}/"


def _problem_of_text(text: str) -> str | None:
    """Return the problem of a text before it is parsed: the parser accepts too much."""
    if text != text.strip() or "\\" in text or not text.isprintable():
        return "it has blanks around it, a backslash or a control character"
    if "?" in text or "#" in text:
        return "it has a query or a fragment"
    if len(text.encode()) > _BYTES_MAX:
        return f"it is longer than {_BYTES_MAX} bytes"
    return None


def _problem_of_parts(parts: SplitResult) -> str | None:
    if parts.scheme not in _SCHEMES:
        return f"expected an absolute URL of {', '.join(f'{name}://' for name in _SCHEMES)}"
    return _problem_of_authority(parts) or _problem_of_path(parts.path)


def _problem_of_authority(parts: SplitResult) -> str | None:
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        return "a file URL names no machine, and an absolute path"
    if parts.scheme != "file" and not parts.netloc:
        return "it names no bucket"
    if "@" in parts.netloc or ":" in parts.netloc:
        return "it names a user or a port"
    return None


def _problem_of_path(path: str) -> str | None:
    inner = path.strip("/").split("/") if path.strip("/") else []
    if path.startswith("//") or path.endswith("//"):
        return "it has an empty component"
    if any(unquote(part) in {"", ".", ".."} or "/" in unquote(part) for part in inner):
        return "it has a component that is empty, `.` or `..`"
    return None
