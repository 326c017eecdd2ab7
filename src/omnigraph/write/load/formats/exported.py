"""A folder that an export wrote, as the input of a load: its summary names the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
import pyarrow.fs

from omnigraph.names import TableKey
from omnigraph.records import MalformedError, Stored
from omnigraph.store.outside_files import locate
from omnigraph.write.export.exporter import SUMMARY, ExportFormat
from omnigraph.write.load.formats.files import InputUnreadableError, open_stream, reading
from omnigraph.write.load.formats.kinds import by_suffix

_FORMATS: Final = tuple(ExportFormat)


def exported_input(
    path: str, options: Mapping[str, str] | None = None
) -> list[str] | dict[str, object] | None:
    """Return the files of an export: graph records, or tables by type; None for anything else."""
    folder = path.rstrip("/")
    if by_suffix(folder.lower()) is not None or not _has_summary(folder, options):
        return None
    summary = f"{folder}/{SUMMARY}"
    with open_stream(summary, options) as source:
        content = source.read()
    try:
        found = Stored(orjson.loads(content))
        form = found.inner("format").one_of(_FORMATS)
        files = dict(found.inner("types").items(_files_of_type))
    except (MalformedError, orjson.JSONDecodeError) as error:
        raise InputUnreadableError(summary, f"is no summary of an export: {error}") from error
    if form == ExportFormat.JSONL:
        return [f"{folder}/{file}" for each in files.values() for file in each]
    return {
        key: {"path": [f"{folder}/{file}" for file in each], "format": form}
        for key, each in files.items()
    }


def _files_of_type(stored: Stored) -> tuple[TableKey, tuple[str, ...]]:
    kind = stored.inner("entity_kind").one_of(("node", "edge"))
    name = stored.inner("type_name").text()
    key = TableKey.node(name) if kind == "node" else TableKey.edge(name)
    return key, stored.inner("files").items(Stored.text)


def _has_summary(folder: str, options: Mapping[str, str] | None) -> bool:
    if "://" not in folder:
        try:
            return Path(folder, SUMMARY).is_file()
        except OSError:
            # No path at all, such as rows in a text; the reader of the input reports it.
            return False
    with reading(folder):
        at = locate(folder, options)
        info = at.system.get_file_info(f"{at.path}/{SUMMARY}")
        return bool(info.type is pyarrow.fs.FileType.File)
