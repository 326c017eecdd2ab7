"""Loads of records."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from msgspec import UNSET
from starlette.responses import Response

from omnigraph.graph import BranchNotFoundError, Job, LoadResult, Report
from omnigraph.server.call import JSON, Call, json_answer
from omnigraph.server.errors import RequestError
from omnigraph.server.http.decode import LOAD_BODY_MAX, branch_name, decode_json
from omnigraph.server.routes.answers import accepted
from omnigraph.server.routes.load_events import EVENTS, load_events
from omnigraph.server.routes.shapes import NAMESPACE, commit_shape
from omnigraph.server.routes.spool import Spool
from omnigraph.wire.requests import IngestRequest, LoadOptionsQuery, LoadQuery

_NDJSON: Final = "application/x-ndjson"
_JOB: Final = "load"


async def load(call: Call) -> Response:
    """Load records that stand in a JSON body."""
    request = await call.body(IngestRequest, limit=LOAD_BODY_MAX)
    branch, source = await _branches(call, request.branch, request.from_)
    data = request.data.encode()
    with call.admitted(len(data)):
        result = await call.run(
            lambda: _load(call, data, branch, source, request.mode, reader="compatible")
        )
    shape = {"uri": call.served.graph.uri, **load_shape(result, source)}
    return json_answer(shape)


async def load_ndjson(call: Call) -> Response:
    """Load records that are the body."""
    return await _load_body(call, call.query(LoadQuery), {})


async def load_with_options(call: Call) -> Response:
    """Load records that are the body, with options that an older server would ignore."""
    request = call.query(LoadOptionsQuery)
    options = {
        "expected_head": request.expected_head,
        "message": request.message,
        "properties": _properties(request.properties),
        "job": Job(NAMESPACE, request.job or _JOB),
        "embed": request.embed,
        "on_duplicate": request.on_duplicate,
        "missing": None if request.missing is UNSET else request.missing,
        "edges": request.edges,
        "cascade": request.cascade,
        "dry_run": request.dry_run,
    }
    return await _load_body(call, request, options)


def _properties(text: str | None) -> dict[str, str]:
    """Return what the commit is to keep."""
    if text is None:
        return {}
    return decode_json(text.encode(), dict[str, str], shape_status=400)


async def _load_body(
    call: Call, request: LoadQuery | LoadOptionsQuery, options: Mapping[str, Any]
) -> Response:
    branch, source = await _branches(call, request.branch, request.from_)
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _NDJSON:
        raise RequestError(f"the content type must be {_NDJSON}", status=415)
    with ExitStack() as held:
        spool = held.enter_context(Spool())
        async for chunk in call.request.stream():
            if spool.is_large_with(chunk):
                await call.run(spool.write, chunk)
            else:
                spool.write(chunk)
        held.enter_context(call.admitted(spool.size))
        # The load closes them, in its thread: it may outlive the request.
        close = held.pop_all().close

    def run(report: Report, cancelled: threading.Event) -> dict[str, object]:
        try:
            result = _load(
                call,
                spool.input(),
                branch,
                source,
                request.mode,
                format="jsonl",
                engine="auto",
                progress=report,
                cancelled=cancelled,
                **options,
            )
        finally:
            close()
        return load_shape(result, source)

    if accepted(call.request.headers.get("accept", ""), (JSON, EVENTS)) == EVENTS:
        return load_events(call, run)
    return json_answer(await call.run_cancellable(lambda cancelled: run(_silent, cancelled)))


def _silent(_: Mapping[str, object]) -> None:
    """Drop the progress."""


async def _branches(call: Call, branch: str | None, source: str | None) -> tuple[str, str | None]:
    """Return the branch to load into and the one to cut it from; decide about both."""
    name = branch_name(branch)
    base = None if source is None else branch_name(source)
    exists = name in await call.run(call.served.graph.branch_list)
    if not exists and base is not None:
        call.authorize("branch_create", branch=base, target_branch=name)
    call.authorize("change", branch=name)
    if not exists and base is None:
        raise BranchNotFoundError(name)
    return name, base


def _load(
    call: Call,
    data: Any,
    branch: str,
    source: str | None,
    mode: str | None,
    **options: Any,
) -> LoadResult:
    return call.served.graph.load(
        data,
        mode=mode or "merge",
        branch=branch,
        from_branch=source,
        actor_id=call.actor,
        **{"engine": "local", "job": Job(NAMESPACE, _JOB), **options},
    )


def load_shape(result: LoadResult, source: str | None) -> dict[str, object]:
    """Return the JSON form of a load."""
    return {
        **result.to_json(),
        "base_branch": source,
        "actor_id": result.actor_id,
        "commit": commit_shape(result.commit),
    }
