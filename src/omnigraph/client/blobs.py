"""A Blob value of a served graph: what it is, and its bytes, each answer checked.

1. The value is described by one request and read by others: the strong tag of all answers must be
   that of the first, and their numbers of bytes those that were asked for.
2. A range is clamped and refused as for a local graph; an external value is never fetched, and a
   redirect is never followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.client.http import AnswerMismatchError, HttpCall
from omnigraph.graph import BlobStat, ByteRange, ExternalBlobError


@dataclass(frozen=True)
class BlobPart:
    """The request for some bytes of a value, and what must hold for its answer."""

    call: HttpCall[BlobStat]
    stat: BlobStat
    part: range

    @classmethod
    def of(
        cls, call: HttpCall[BlobStat], stat: BlobStat, wanted: ByteRange | None
    ) -> BlobPart | None:
        """Return the request for a range, by default for all; None where there is nothing."""
        if stat.uri is not None or stat.size is None:
            raise ExternalBlobError(stat.selector, stat.uri or "")
        part = (wanted or ByteRange()).within(stat.size)
        if not part:
            return None
        headers = {"If-Match": stat.etag or ""}
        if len(part) < stat.size:
            headers["Range"] = f"bytes={part.start}-{part.stop - 1}"
        return cls(replace(call, method="GET", headers=headers), stat, part)

    def check(self, url: str, status: int, headers: Mapping[str, Any]) -> None:
        """Raise unless the answer is what was asked for."""
        size = self.stat.size
        expected = {
            "etag": self.stat.etag,
            "content-length": str(len(self.part)),
            "content-range": f"bytes {self.part.start}-{self.part.stop - 1}/{size}",
        }
        if len(self.part) == size:
            del expected["content-range"]
        wanted_status = 206 if "content-range" in expected else 200
        _require(url, "status", str(wanted_status), str(status))
        for name, value in expected.items():
            _require(url, name, str(value), str(headers.get(name)))
        if not headers.get("omnigraph-snapshot-id"):
            _require(url, "omnigraph-snapshot-id", "the id of a commit", "nothing")

    def check_length(self, url: str, found: int) -> None:
        """Raise unless all bytes came."""
        _require(url, "length", str(len(self.part)), str(found))


def _require(url: str, what: str, expected: str, found: str) -> None:
    if expected != found:
        raise AnswerMismatchError(url, what, expected, found)
