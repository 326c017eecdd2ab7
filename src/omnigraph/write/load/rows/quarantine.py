r"""The rejected rows of a load: one JSON object per line, in a directory that the caller names.

    {"reason": "…", "codes": ["V203"], "source": "people.jsonl", "position": 17, "record": {…}}

| member | is |
|---|---|
| `reason` | everything that is wrong with the row |
| `codes` | the codes of that, in the same order |
| `source`, `position` | where it came from, as far as that is known |
| `record` | the record as it was read, or `text` where it is no JSON (other bytes as `\xff`) |
|          | what nests deeper than 128 is `…` |

There is a file per type, `node-Person.jsonl`, and `unreadable.jsonl` for records without a type.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.errors import InvalidInputError
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values.to_json import JsonForm, to_json_values
from omnigraph.store.durability import fsync_path
from omnigraph.texts import without_depths
from omnigraph.write.load.rows.absent import NOTHING_ABSENT, AbsentMasks, any_of
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Mask, flat

_UNREADABLE: Final = "unreadable"


class QuarantineInUseError(InvalidInputError):
    """The directory for rows that are left out has files already."""

    code = "OG-QUARANTINE"
    hint = "name a directory that is empty or does not exist"
    template = "the quarantine directory {directory} is not empty"
    directory: str


class QuarantineUnwritableError(InvalidInputError):
    """Rows that are left out cannot be kept; nothing was loaded."""

    code = "OG-QUARANTINE-WRITE"
    hint = "name a directory that can be written and has room, then load again"
    template = "the quarantine directory {directory} cannot be written: {problem}"
    directory: str
    problem: str


class Quarantine:
    """Writes rejected rows, and counts them by table."""

    def __init__(self, directory: Path) -> None:
        with _writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            is_in_use = any(directory.iterdir())
        if is_in_use:
            raise QuarantineInUseError(str(directory))
        self._directory = directory
        self._files: dict[str, BinaryIO] = {}
        self.counts: Counter[str] = Counter()

    def add(
        self, entity_type: EntityType | None, record: object, violations: Sequence[Violation]
    ) -> None:
        """Write one rejected row."""
        key = _UNREADABLE if entity_type is None else entity_type.table_key
        self.counts[key] += 1
        line: dict[str, object] = {
            "reason": "; ".join(dict.fromkeys(found.message for found in violations)),
            "codes": list(dict.fromkeys(found.code for found in violations)),
            "source": violations[0].source,
            "position": violations[0].position,
        }
        if isinstance(record, bytes):
            line["text"] = record.decode(errors="backslashreplace")
        else:
            line["record"] = record
        with _writing(self._directory):
            self._file(key).write(json_record(line) + b"\n")

    def keep(self) -> None:
        """Flush what was written to disk, before the other rows are committed."""
        with _writing(self._directory):
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
            if self._files:
                fsync_path(self._directory)

    def close(self) -> None:
        """Close the files; without a row there is none."""
        for file in self._files.values():
            # `keep` has flushed what has to stay; a load that failed raises its own error.
            with suppress(OSError):
                file.close()

    def _file(self, key: str) -> BinaryIO:
        if key not in self._files:
            name = key.replace(":", "-") + ".jsonl"
            self._files[key] = (self._directory / name).open("wb")
        return self._files[key]


def json_record(record: object) -> bytes:
    """Return a record that was read from any kind of input as JSON; what JSON lacks is text."""
    try:
        return orjson.dumps(record, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # The JSON writer allows less nesting than the reader.
        kept = without_depths(record)
        return orjson.dumps(kept, default=_plain, option=orjson.OPT_NON_STR_KEYS)


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise QuarantineUnwritableError(str(directory), error.strerror or str(error)) from error


def graph_records(
    entity_type: EntityType,
    rows: pa.Table,
    absent: AbsentMasks = NOTHING_ABSENT,
    made: Mask | None = None,
) -> list[dict[str, object]]:
    """Return stored rows in the form of graph records, without what they do not name.

    Ids that were `made` are left out: with one, an edge would not be matched when it is loaded
    again.
    """
    columns = {
        name: to_json_values(flat(rows[name]), prop.prop_type, JsonForm.EXPORT)
        for name, prop in entity_type.properties.items()
    }
    no_ids = np.zeros(rows.num_rows, np.bool_) if made is None else made
    ids = [
        {} if is_made else {"id": one}
        for one, is_made in zip(rows["id"].to_pylist(), no_ids, strict=True)
    ]
    named = {name: ~any_of(absent, (name,), rows.num_rows) for name in columns}
    data = [
        {
            **ids[row],
            **{name: column[row] for name, column in columns.items() if named[name][row]},
        }
        for row in range(rows.num_rows)
    ]
    if not isinstance(entity_type, EdgeType):
        return [{"type": entity_type.name, "data": one} for one in data]
    sources, targets = rows["src"].to_pylist(), rows["dst"].to_pylist()
    return [
        {"edge": entity_type.name, "from": source, "to": target, "data": one}
        for source, target, one in zip(sources, targets, data, strict=True)
    ]


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    return str(value)
