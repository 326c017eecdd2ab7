"""One Blob value: whole, a range, conditional, or the address of an external object."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from starlette.responses import Response

from omnigraph.errors import ConflictError, CorruptError, OmnigraphError
from omnigraph.graph import Blob, BlobRangeError, ByteRange
from omnigraph.server.call import Call, json_answer
from omnigraph.server.errors import RequestError
from omnigraph.server.http.decode import decode_query
from omnigraph.server.http.streams import cut, streamed
from omnigraph.server.http.transport import BLOB_SHARE_MAX
from omnigraph.wire.http_errors import http_error
from omnigraph.wire.outcomes import outcome_of
from omnigraph.wire.requests import BlobQuery

_OCTETS: Final = "application/octet-stream"
_CHUNK_BYTES: Final = 262_144
_RANGE: Final = re.compile(r"bytes=(?:(\d{1,20})-(\d{0,20})|-(\d{1,20}))\Z", re.IGNORECASE)
_OFFSET_MAX: Final = 2**64 - 1
_TAGS: Final = re.compile(r'\s*(W/)?("[^"]*")\s*(?:,|\Z)')
_log = logging.getLogger(__name__)


class BlobInternalError(CorruptError):
    """Something that was not foreseen while a Blob value was read."""

    code = "OG-HTTP-BLOB"
    hint = "the log of the server has the details"
    template = "internal error while reading a Blob value"


class BlobTagError(ConflictError):
    """`If-Match` names another version of a Blob value."""

    code = "OG-HTTP-IF-MATCH"
    hint = "read the value again: the answer has its current ETag"
    status: ClassVar[int] = 412
    template = "the value has another tag"


async def get(call: Call) -> Response:
    """Return a Blob value."""
    found, headers = await _find(call)
    if found.stat.uri is not None:
        return _external(found.stat.uri, headers)
    answer = _conditional(call, found, headers)
    if answer is not None:
        return answer
    size = found.stat.size or 0
    asked = _asked_range(call, found.stat.etag or "")
    if asked is None:
        return await _bytes(call, found, headers | {"Content-Length": str(size)}, 200, None)
    part = asked.within(size)
    if part is None:
        return _unsatisfiable(asked, size, headers)
    headers |= {
        "Content-Range": f"bytes {part.start}-{part.stop - 1}/{size}",
        "Content-Length": str(len(part)),
    }
    return await _bytes(call, found, headers, 206, ByteRange(part.start, len(part)))


async def head(call: Call) -> Response:
    """Return the headers of a Blob value; nothing of it is read."""
    found, headers = await _find(call)
    if found.stat.uri is not None:
        return _external(found.stat.uri, headers)
    answer = _conditional(call, found, headers)
    if answer is not None:
        return answer
    return Response(
        None, 200, headers | {"Content-Length": str(found.stat.size or 0)}, media_type=_OCTETS
    )


async def _find(call: Call) -> tuple[Blob, dict[str, str]]:
    try:
        query = decode_query(call.request.scope["query_string"], BlobQuery)
    except RequestError as error:
        raise RequestError(f"invalid Blob selector query parameters: {error.problem}") from error
    target, branch = await call.read_target(query.branch, query.snapshot, query.tag, query.at)
    call.authorize("read", branch=branch)
    graph = call.served.graph
    try:
        found = await call.run(
            lambda: graph.blob(query.entity, query.type, query.id, query.property, target=target)
        )
    except OmnigraphError as error:
        if outcome_of(error).http_status < 500:
            raise
        _log.exception("blob")
        raise BlobInternalError from error
    headers = {"Omnigraph-Snapshot-Id": found.stat.snapshot_id}
    if found.stat.etag is not None:
        headers |= {"ETag": found.stat.etag, "Accept-Ranges": "bytes"}
    return found, headers


def _external(uri: str, headers: Mapping[str, str]) -> Response:
    return Response(None, 302, {**headers, "Location": uri, "Cache-Control": "no-store"})


# -- conditions -----------------------------------------------------------------------------------


def _conditional(call: Call, found: Blob, headers: dict[str, str]) -> Response | None:
    """Return the answer that `If-Match` or `If-None-Match` decide, if they do."""
    etag, given = found.stat.etag or "", call.request.headers
    if "if-match" in given and not _matches(given.getlist("if-match"), etag, weak=False):
        # Its code is that of a conflict: only a lost conditional write has none.
        _, shape = http_error(BlobTagError())
        return json_answer(shape, status=BlobTagError.status, headers=headers)
    if "if-none-match" in given and _matches(given.getlist("if-none-match"), etag, weak=True):
        return Response(None, 304, headers | {"Content-Length": str(found.stat.size or 0)})
    return None


def _matches(values: list[str], etag: str, *, weak: bool) -> bool:
    """Whether a list of tags names a tag; a list that cannot be read names none."""
    text = ",".join(values).strip()
    if text == "*":
        return True
    tags, at = [], 0
    while at < len(text):
        found = _TAGS.match(text, at)
        if found is None:
            return False
        tags.append((bool(found[1]), found[2]))
        at = found.end()
    return any(tag == etag and (weak or not is_weak) for is_weak, tag in tags)


# -- ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """A range of a request: from a start to an end (inclusive), or the last bytes."""

    start: int | None
    end: int | None

    def within(self, size: int) -> range | None:
        """Return the selected bytes, None if there are none."""
        if self.start is None:
            count = min(self.end or 0, size)
            return range(size - count, size) if count else None
        if self.start >= size:
            return None
        return range(self.start, size if self.end is None else min(self.end + 1, size))

    def half_open(self, size: int) -> tuple[int, int]:
        """Return the range as it was asked for."""
        if self.start is None:
            return max(size - (self.end or 0), 0), size
        return self.start, size if self.end is None else self.end + 1


def _asked_range(call: Call, etag: str) -> _Asked | None:
    """Return the range to answer with; one that is not understood is ignored."""
    given = call.request.headers
    values, conditions = given.getlist("range"), given.getlist("if-range")
    found = _RANGE.match(values[0]) if len(values) == 1 else None
    if found is None or (conditions and conditions != [etag]):
        return None
    first, last, suffix = (int(part) if part else None for part in found.groups())
    if any(bound is not None and bound > _OFFSET_MAX for bound in (first, last, suffix)):
        return None
    if suffix is not None:
        return _Asked(None, suffix)
    is_reversed = first is not None and last is not None and first > last
    return None if is_reversed else _Asked(first, last)


def _unsatisfiable(asked: _Asked, size: int, headers: dict[str, str]) -> Response:
    start, end = asked.half_open(size)
    problem = f"a range from byte {start} is not satisfiable: the value has {size} bytes"
    error = BlobRangeError(start=start, end=end, length=size, problem=problem)
    status, shape = http_error(error)
    return json_answer(shape, status=status, headers=headers | {"Content-Range": f"bytes */{size}"})


async def _bytes(
    call: Call, found: Blob, headers: dict[str, str], status: int, part: ByteRange | None
) -> Response:
    memory, size = call.serving.transport.blobs, int(headers["Content-Length"])
    share = min(size, BLOB_SHARE_MAX)
    await memory.reserve(share)
    answer = await streamed(
        call.serving.pool,
        lambda: cut(found.chunks(part), _CHUNK_BYTES),
        media_type=_OCTETS,
        headers=headers,
        on_end=lambda: memory.release(share),
    )
    answer.status_code = status
    return answer
