"""Vectors for records of a JSONL file, before it is loaded: one file in, one file out.

1. The output appears whole or not at all: it is written to a temporary file and renamed at the
   end.
2. Records are read and written in batches; memory does not grow with the file.
3. A record of a type that the spec does not name, and one without a type, passes through unchanged.
4. A text is sent once while its vector is cached.

| mode | acts on selected records of a type in the spec |
|---|---|
| `fill_missing` | whose target is absent, null or empty |
| `reembed_selected`, `reembed_all` | all |
| `clean` | all: the target is removed, and no provider is needed |
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.errors import InvalidInputError
from omnigraph.search.embedding.columns import TextEmbedder, embed_column
from omnigraph.texts import JSON_DEPTH_MAX, nests_too_deep

_BATCH_RECORDS: Final = 1_024
_TEXTS_KEPT_MAX: Final = 20_000


class EmbedFileMode(StrEnum):
    """What to do with selected records."""

    FILL_MISSING = "fill_missing"
    REEMBED_SELECTED = "reembed_selected"
    REEMBED_ALL = "reembed_all"
    CLEAN = "clean"


class EmbedFileError(InvalidInputError):
    """A file of records, a spec or a selector cannot be used."""

    code = "OG-EMBED-FILE"
    template = "{problem}"
    problem: str
    hint: str = "correct the file, then run the command again"


@dataclass(frozen=True)
class TypeSpec:
    """Which member of a record gets the vector, and from which members its text is made."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class EmbedSpec:
    """The dimension of all vectors, and what to do by type."""

    dimension: int
    types: Mapping[str, TypeSpec]

    @classmethod
    def of(cls, value: object, where: str) -> EmbedSpec:
        """Read a spec from decoded JSON or YAML."""
        spec = _mapping(value, where)
        dimension = spec.get("dimension")
        if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
            raise EmbedFileError(f"{where}: 'dimension' must be a positive integer")
        types = _mapping(spec.get("types"), f"{where}: 'types'")
        return cls(
            dimension, {name: _type_spec(found, name, where) for name, found in types.items()}
        )


@dataclass(frozen=True)
class Selector:
    """Picks records by the value of one member, of one type or of any."""

    type_name: str | None
    field: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read `field=value` or `Type:field=value`.

        >>> Selector.parse("Note:title = Hello ")
        Selector(type_name='Note', field='title', value='Hello')
        """
        left, equals, value = text.partition("=")
        type_name, colon, name = left.partition(":")
        if not colon:
            type_name, name = "", left
        if not equals or not name.strip() or (colon and not type_name.strip()):
            raise EmbedFileError(
                f"selector '{text}' is not understood", "write field=value or Type:field=value"
            )
        return cls(type_name.strip() or None, name.strip(), value.strip())

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Return whether a record is selected."""
        if self.type_name not in (None, type_name):
            return False
        return self.field in data and rendered(data[self.field]) == self.value


@dataclass(frozen=True)
class EmbedFileRequest:
    """What to do with one file."""

    source: Path
    output: Path
    spec: EmbedSpec
    reembed_all: bool = False
    clean: bool = False
    types: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()

    @property
    def mode(self) -> EmbedFileMode:
        """What to do with selected records."""
        if self.clean:
            return EmbedFileMode.CLEAN
        if self.reembed_all:
            return EmbedFileMode.REEMBED_ALL
        return EmbedFileMode.REEMBED_SELECTED if self.selectors else EmbedFileMode.FILL_MISSING


@dataclass(frozen=True)
class EmbedFileResult:
    """Counts of what was done."""

    input: str
    output: str
    records: int
    selected_records: int
    embedded_records: int
    cleaned_records: int
    mode: str
    dimension: int
    model: str


@dataclass
class _Work:
    """One file that is being processed."""

    request: EmbedFileRequest
    embedder: Callable[[], TextEmbedder]
    """Makes the client when the first text needs it."""
    known: dict[str, Any] = field(default_factory=dict)
    records: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0

    def transformed(self, batch: list[tuple[int, bytes]]) -> Iterator[bytes]:
        records = [self._record(number, line) for number, line in batch]
        pending: dict[tuple[int, str], str] = {}
        for row, record in enumerate(records):
            spec = self._spec_of(record, batch[row][0])
            if spec is None:
                continue
            if self.request.clean:
                self.cleaned += record["data"].pop(spec.target, None) is not None
            elif self._is_due(record["data"], spec):
                pending[row, spec.target] = text_of(record["type"], record["data"], spec.fields)
        if pending:
            self._fill(records, pending)
        for record in records:
            yield orjson.dumps(record) + b"\n"

    def _fill(self, records: list[Any], pending: dict[tuple[int, str], str]) -> None:
        texts = pa.array(list(pending.values()), pa.utf8())
        dimension = self.request.spec.dimension
        vectors = embed_column(self.embedder(), texts, dimension, known=self.known)
        for (row, target), vector in zip(pending, vectors.to_pylist(), strict=True):
            records[row]["data"][target] = vector
        self.embedded += len(pending)
        while len(self.known) > _TEXTS_KEPT_MAX:
            del self.known[next(iter(self.known))]

    def _record(self, number: int, line: bytes) -> Any:
        self.records += 1
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise EmbedFileError(f"line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise EmbedFileError(f"line {number} is not a JSON object")
        if nests_too_deep(line.decode()):
            raise EmbedFileError(f"line {number} nests deeper than {JSON_DEPTH_MAX}")
        return record

    def _spec_of(self, record: dict[str, Any], number: int) -> TypeSpec | None:
        """Return what to do with a record; None when it passes through."""
        type_name = record.get("type")
        if not isinstance(type_name, str):
            return None
        data = record.get("data")
        if not isinstance(data, dict):
            raise EmbedFileError(f"line {number} is missing object field 'data'")
        request = self.request
        if request.types and type_name not in request.types:
            return None
        if request.selectors and not any(s.matches(type_name, data) for s in request.selectors):
            return None
        self.selected += 1
        return request.spec.types.get(type_name)

    def _is_due(self, data: Mapping[str, Any], spec: TypeSpec) -> bool:
        if self.request.mode is not EmbedFileMode.FILL_MISSING:
            return True
        return data.get(spec.target) in (None, [])


def embed_file(request: EmbedFileRequest, embedder: Callable[[], TextEmbedder]) -> EmbedFileResult:
    """Read a file, make or remove vectors, and write the result as a whole."""
    work = _Work(request, embedder)
    output = request.output
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for batch in _batches(request.source):
                file.writelines(work.transformed(batch))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    return EmbedFileResult(
        input=str(request.source),
        output=str(output),
        records=work.records,
        selected_records=work.selected,
        embedded_records=work.embedded,
        cleaned_records=work.cleaned,
        mode=str(request.mode),
        dimension=request.spec.dimension,
        model="" if request.clean else embedder().model,
    )


def text_of(type_name: str, data: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    """Return the text of a record from which its vector is made.

    >>> text_of("Note", {"title": " Hi ", "n": None}, ("title", "n")).splitlines()
    ['type: Note', 'title: Hi']
    """
    values = ((name, rendered(data.get(name))) for name in fields)
    lines = (f"{name}: {value}" for name, value in values if value)
    return "\n".join([f"type: {type_name}", *lines])


def rendered(value: object) -> str:
    """Return a JSON value as text.

    >>> [rendered(value) for value in (True, 1.5, None, ["a", None, 2], {"k": 1})]
    ['true', '1.5', '', 'a, 2', '{"k":1}']
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(part for part in map(rendered, value) if part)
    return orjson.dumps(value).decode()


def _batches(source: Path) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines with their numbers; blank ones are left out and not counted."""
    try:
        with source.open("rb") as file:
            lines = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
            yield from iter(lambda: list(itertools.islice(lines, _BATCH_RECORDS)), [])
    except OSError as error:
        raise EmbedFileError(f"{source} cannot be read: {error.strerror}") from error


def _type_spec(value: object, name: str, where: str) -> TypeSpec:
    spec = _mapping(value, f"{where}: type '{name}'")
    target, fields = spec.get("target"), spec.get("fields")
    if not isinstance(target, str) or not target:
        raise EmbedFileError(f"{where}: type '{name}' needs a 'target'")
    if not isinstance(fields, list) or not fields or not all(isinstance(f, str) for f in fields):
        raise EmbedFileError(f"{where}: type '{name}' needs a list of 'fields'")
    return TypeSpec(target, tuple(fields))


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise EmbedFileError(f"{what} must be an object")
    return value
