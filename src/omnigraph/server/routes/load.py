"""Loads of records."""

from __future__ import annotations

import tempfile
from typing import Any, Final

from starlette.responses import Response

from omnigraph.graph import BranchNotFoundError, LoadResult
from omnigraph.server.call import Call, json_answer
from omnigraph.server.decode import LOAD_BODY_MAX, branch_name
from omnigraph.server.errors import RequestError
from omnigraph.server.routes.shapes import commit_shape
from omnigraph.wire.requests import IngestRequest, LoadQuery

_NDJSON: Final = "application/x-ndjson"
_IN_MEMORY_MAX: Final = 4 << 20


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
    request = call.query(LoadQuery)
    branch, source = await _branches(call, request.branch, request.from_)
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _NDJSON:
        raise RequestError(f"the content type must be {_NDJSON}", status=415)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_MAX) as spool:
        size = 0
        async for chunk in call.request.stream():
            size += len(chunk)
            if spool.tell() + len(chunk) > _IN_MEMORY_MAX:
                await call.run(spool.write, chunk)
            else:
                spool.write(chunk)
        spool.seek(0)
        with call.admitted(size):
            result = await call.run(lambda: _load(call, spool, branch, source, request.mode))
    return json_answer(load_shape(result, source))


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
    *,
    reader: str = "strict",
) -> LoadResult:
    return call.served.graph.load(
        data,
        mode=mode or "merge",
        branch=branch,
        from_branch=source,
        reader=reader,
        actor_id=call.actor,
        external_blob_bases=call.served.external_blob_bases,
        engine="local",
    )


def load_shape(result: LoadResult, source: str | None) -> dict[str, object]:
    """Return the JSON form of a load."""
    return {
        **result.to_json(),
        "base_branch": source,
        "actor_id": result.actor_id,
        "commit": commit_shape(result.commit),
    }
