"""The accepted schema of `main` as files, for people and tools.

They are derived from the manifest and never the authority: a file that differs is rewritten, and an
edited `_schema.pg` is saved under another name so that its text is not lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.manifest.layout import SCHEMA_IR, SCHEMA_SOURCE, SCHEMA_STATE
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.schema import compile_schema
from omnigraph.schema.ir.drift import REJECTED_FILE, schema_file_warning
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectStore

_log = logging.getLogger(__name__)


def refresh_schema_files(
    objects: ObjectStore, accepted: AcceptedSchema, *, previous: AcceptedSchema | None = None
) -> None:
    """Write what the manifest says into the files; a failure is logged and repaired later.

    `previous` is the schema that was accepted until now: a file that says so was not edited.
    """
    try:
        _write_schema_files(objects, accepted, previous)
    except OmnigraphError as error:
        _log.warning("the schema files were not brought up to date: %s", error)


def _write_schema_files(
    objects: ObjectStore, accepted: AcceptedSchema, previous: AcceptedSchema | None
) -> None:
    source = _read(objects, SCHEMA_SOURCE)
    if source is not None and not _was_accepted(objects, source, accepted, previous):
        found = source.decode("utf-8", errors="replace")
        warning = schema_file_warning(found, stored=accepted.source)
        if warning is not None:
            _log.warning("%s", warning)
            objects.put(REJECTED_FILE, source)
    wanted = {
        SCHEMA_SOURCE: accepted.source.encode(),
        SCHEMA_IR: _json(accepted.ir),
        SCHEMA_STATE: _json(accepted.state),
    }
    for path, data in wanted.items():
        present = source if path == SCHEMA_SOURCE else _read(objects, path)
        if present != data:
            objects.put(path, data)


def _was_accepted(
    objects: ObjectStore,
    source: bytes,
    accepted: AcceptedSchema,
    previous: AcceptedSchema | None,
) -> bool:
    """Whether the file is only outdated: it holds the schema accepted before, without edits.

    After a crash only the other files show that: they still belong to the older text.
    """
    if previous is not None and source == previous.source.encode():
        return True
    state = _read(objects, SCHEMA_STATE)
    if state is None or state == _json(accepted.state):
        return False
    try:
        recorded = orjson.loads(state)
        found = compile_schema(source.decode(), domain=recorded["schema_identity_domain"])
        return bool(found.shape_hash == recorded["schema_shape_hash"])
    except (InvalidInputError, KeyError, TypeError, ValueError):
        return False


def _json(form: Mapping[str, Any]) -> bytes:
    return orjson.dumps(form, option=orjson.OPT_INDENT_2)


def _read(objects: ObjectStore, path: str) -> bytes | None:
    try:
        return objects.get(path).data
    except ObjectNotFoundError:
        return None
