"""Records that a task rejects, as a side file that the driver reads.

    [{"table": "node:Person" | null, "record": {…} | "bytes": "base64…", "violations": [{…}]}]

The file lies in the graph's storage, where others may write: it is plain JSON, never a pickle.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import orjson

from omnigraph.names import TableKey
from omnigraph.store.errors import CorruptObjectError
from omnigraph.write.load.rows.quarantine import json_record
from omnigraph.write.rules.violations import Violation

Rejected: TypeAlias = tuple[str | None, object, list[Violation]]
"""The key of its table, the record, and what is wrong with it."""


def encode_rejected(rejected: Sequence[Rejected]) -> bytes:
    """Return the content of the file."""
    return b"[" + b",".join(_encoded(*one) for one in rejected) + b"]"


def decode_rejected(path: str, content: bytes) -> Iterator[Rejected]:
    """Read the content of a file; `path` names it in an error."""
    try:
        for form in orjson.loads(content):
            key = None if form["table"] is None else TableKey(form["table"])
            violations = [Violation(**found, table_key=key) for found in form["violations"]]
            yield key, _record(form), violations
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptObjectError(
            path=path, reason=f"it is no file of rejected records ({error!r})"
        ) from error


def _encoded(table: str | None, record: object, violations: Sequence[Violation]) -> bytes:
    form: dict[str, object] = {
        "table": table,
        "violations": [violation.to_json() for violation in violations],
    }
    if isinstance(record, bytes):
        form["bytes"] = base64.b64encode(record).decode()
    else:
        form["record"] = orjson.Fragment(json_record(record))
    return orjson.dumps(form)


def _record(form: dict[str, Any]) -> object:
    return base64.b64decode(form["bytes"]) if "bytes" in form else form["record"]
