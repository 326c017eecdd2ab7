"""From an error to an HTTP answer, and from the answer back to the same error.

The status follows from the kind of the error (`outcomes`), except for the codes of `_FORMS`. An
answer has at most one detail, by which clients tell newer kinds apart, and under `omnigraph` what
the library itself knows: code, facts, hint. A client makes the same class of error out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_type_hints, runtime_checkable
from urllib.parse import urlsplit

import msgspec
import orjson

from omnigraph.errors import (
    ConflictError,
    DeniedError,
    InvalidInputError,
    NotFoundError,
    OmnigraphError,
    UnavailableError,
)
from omnigraph.names import TableKey
from omnigraph.wire.outcomes import outcome_of

Code = Literal[
    "unauthorized",
    "forbidden",
    "bad_request",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]
Json = dict[str, Any]
Detail = Callable[[Any], Json]

CODES: Final[Mapping[int, Code]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    422: "bad_request",
    429: "too_many_requests",
    500: "internal",
}
"""The code of a status; newer statuses have a detail and no code."""

_KINDS: Final[Mapping[int, type[OmnigraphError]]] = {
    400: InvalidInputError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidInputError,
    415: InvalidInputError,
    416: InvalidInputError,
    422: InvalidInputError,
    429: ConflictError,
    503: UnavailableError,
}
"""What an error of a code that only servers have is, by its status."""

DETAILS: Final = (
    "merge_conflicts",
    "key_conflict",
    "published_dataset_version_conflict",
    "manifest_conflict",
    "read_set_conflict",
    "change_diff_refusal",
    "change_feed_gap",
    "precondition_failure",
    "resource_limit",
    "blob_range",
    "external_blob_source",
    "recovery_required",
)
"""The details that an answer may have."""


_NO_JSON: Final = object()


class ServerAnswerError(OmnigraphError):
    """An answer of a server that no class of the library stands for."""

    code = "OG-SERVER"
    hint = "check the address; the log of the server says more"

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@runtime_checkable
class _Previewed(Protocol):
    def preview(self) -> str: ...


@dataclass(frozen=True)
class _Form:
    status: int
    detail: Detail | None = None


def _moved(error: Any) -> Json:
    key = TableKey(error.table_key)
    return {
        "published_dataset_version_conflict": {
            "entity_kind": "edge" if key.is_edge else "node",
            "type_name": key.type_name,
            "expected_published_dataset_version": error.expected,
            "actual_published_dataset_version": error.actual,
        },
        "manifest_conflict": {
            "table_key": str(key),
            "expected": error.expected,
            "actual": error.actual,
        },
    }


def _lost(error: Any) -> Json:
    failure = {"expected": error.expected}
    if error.actual is not None:
        failure["actual"] = error.actual
    return {"precondition_failure": failure}


def _pending(error: Any) -> Json:
    return {"recovery_required": {"operation_id": error.operation_id}}


def _unread(error: Any) -> Json:
    parts = urlsplit(error.uri)
    uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return {"external_blob_source": {"uri": uri, "reason": error.problem}}


def _changed(error: Any) -> Json:
    return {"read_set_conflict": {"member": error.member, "expected": None, "actual": None}}


_FORMS: Final[Mapping[str, _Form]] = {
    "OG-PRECONDITION": _Form(412, _lost),
    "OG-EXPECTED-VERSION": _Form(409, _moved),
    "OG-READ-SET": _Form(409, _changed),
    "OG-CHANGE-GAP": _Form(410),
    "OG-BLOB-RANGE": _Form(416),
    "OG-BLOB-SOURCE": _Form(424, _unread),
    "OG-RECOVERY-STOPPED": _Form(503, _pending),
    "OG-WRITE-UNSETTLED": _Form(503, _pending),
    "OG-QUERY-CANCELLED": _Form(499),
    "OG-LOAD-CANCELLED": _Form(499),
    "OG-STORE-PERMISSION": _Form(500),
}


def http_error(error: OmnigraphError) -> tuple[int, Json]:
    """Return the status and the body that stand for an error."""
    form = _FORMS.get(error.code)
    status = outcome_of(error).http_status if form is None else form.status
    details = dict(error.details or {})
    found: Json = {name: details.pop(name) for name in DETAILS if name in details}
    if form is not None and form.detail is not None:
        found |= form.detail(error)
    if "resource_limit" in found:
        status = 413
    return status, error_body(status, error, found, details)


def error_body(status: int, error: OmnigraphError, found: Json, details: Json) -> Json:
    """Return the body of an error answer."""
    body: Json = {"error": _text(error)}
    if status in CODES:
        body["code"] = CODES[status]
    facts: Json = {"code": error.code, "facts": _facts(error)}
    if error.hint:
        facts["hint"] = error.hint
    if details:
        facts["details"] = details
    return body | found | {"omnigraph": facts}


def _text(error: OmnigraphError) -> str:
    """Return the text of an error; conflicts of a merge are many, and the first ones stand for all.

    Their messages are in the detail.
    """
    return error.preview() if isinstance(error, _Previewed) else str(error)


def _facts(error: OmnigraphError) -> Json:
    """Return the fields of an error that JSON can hold; its hint stands next to them."""
    found = {name: _plain(value) for name, value in vars(error).items() if name != "hint"}
    return {name: value for name, value in found.items() if value is not _NO_JSON}


def _plain(value: object) -> object:
    try:
        return orjson.loads(orjson.dumps(value, default=_simpler))
    except TypeError:
        return _NO_JSON


def _simpler(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    raise TypeError


def http_answer(error: OmnigraphError) -> tuple[int, Json]:
    """Return the status and the body of an answer; an error may have a status of its own."""
    status, shape = http_error(error)
    status = getattr(error, "status", status)
    if status in CODES:
        shape["code"] = CODES[status]
    else:
        shape.pop("code", None)
    return status, shape


def error_of(
    status: int, body: bytes, *, classes: Mapping[str, type[OmnigraphError]]
) -> OmnigraphError:
    """Return the error that an answer stands for; `classes` are those of the library by code."""
    try:
        shape = orjson.loads(body)
        text = str(shape["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ServerAnswerError(
            status, body.decode(errors="replace").strip() or f"status {status}"
        )
    known = shape.get("omnigraph") or {}
    kind = classes.get(known.get("code", ""), _KINDS.get(status, OmnigraphError))
    facts = _typed(kind, known.get("facts") or {})
    hint = {"hint": known["hint"]} if "hint" in known else {}
    error = kind.of_facts(facts | hint)
    if error is None:
        error = kind.__new__(kind)
        error.args = (text,)
        error.__dict__.update(facts | hint)
    if "code" in known and known["code"] != kind.code:
        error.__dict__["code"] = known["code"]
    return error


def _typed(kind: type[OmnigraphError], facts: Json) -> Json:
    """Return facts as the fields of their class are declared; another release may differ."""
    try:
        hints = get_type_hints(kind)
    except NameError:
        return facts
    return {name: _converted(value, hints.get(name, Any)) for name, value in facts.items()}


def _converted(value: Any, hint: Any) -> Any:
    bases = getattr(hint, "__orig_bases__", ())
    try:
        if bases and isinstance(hint, type) and issubclass(hint, tuple):
            return hint(msgspec.convert(value, bases[0], dec_hook=_made))
        return msgspec.convert(value, hint, dec_hook=_made)
    except (msgspec.ValidationError, TypeError):
        return value


def _made(kind: type, value: Any) -> Any:
    """Make a value of a class of its own, such as a name that is a string."""
    return kind(value)
