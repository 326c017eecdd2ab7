"""The accepted schema of `main` as files, for people and tools.

They are derived from the manifest and never the authority: a file that differs is rewritten, and an
edited `_schema.pg` is kept aside so that nobody loses their text.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import orjson

from omnigraph.errors import OmnigraphError
from omnigraph.manifest.layout import SCHEMA_IR, SCHEMA_SOURCE, SCHEMA_STATE
from omnigraph.schema.compiled.drift import REJECTED_FILE, schema_file_warning
from omnigraph.store.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from omnigraph.manifest.rows import AcceptedSchema
    from omnigraph.store.objects import ObjectStore

_log = logging.getLogger(__name__)


def refresh_schema_files(objects: ObjectStore, accepted: AcceptedSchema) -> None:
    """Make the files say what the manifest says; a failure is logged and made up for later."""
    try:
        _write_schema_files(objects, accepted)
    except OmnigraphError as error:
        _log.warning("the schema files were not brought up to date: %s", error)


def _write_schema_files(objects: ObjectStore, accepted: AcceptedSchema) -> None:
    source = _read(objects, SCHEMA_SOURCE)
    if source is not None:
        found = source.decode("utf-8", errors="replace")
        warning = schema_file_warning(found, stored=accepted.source)
        if warning is not None:
            _log.warning("%s", warning)
            objects.put(REJECTED_FILE, source)
    wanted = {
        SCHEMA_SOURCE: accepted.source.encode(),
        SCHEMA_IR: orjson.dumps(accepted.ir, option=orjson.OPT_INDENT_2),
        SCHEMA_STATE: orjson.dumps(accepted.state, option=orjson.OPT_INDENT_2),
    }
    for path, data in wanted.items():
        present = source if path == SCHEMA_SOURCE else _read(objects, path)
        if present != data:
            objects.put(path, data)


def _read(objects: ObjectStore, path: str) -> bytes | None:
    try:
        return objects.get(path).data
    except ObjectNotFoundError:
        return None
