"""What a caller may say about a source of rows of one type.

| source | means |
|---|---|
| a path, or a list of paths | files; their names and content say the format |
| a mapping with `path` | the same, with `format`, `options` of CSV, and `map` |
| a mapping with `table`, `schema`, a format of Spark, or SQL in `map` | a DataFrame of Spark |
| a list of objects | rows as JSON has them |
| anything else | a table in memory |

`map` names the column of a property. Columns that it does not name are taken where the type has a
property of their name, and are left out otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.names import nearest_name
from omnigraph.schema import EntityType
from omnigraph.write.load.formats.csv_rows import (
    OPTION_ALIASES,
    OPTION_NAMES,
    CsvOptionError,
    CsvOptions,
    csv_options,
)
from omnigraph.write.load.formats.kinds import CSV, FORMAT_NAMES, TSV, Format, format_named

SPEC_KEYS: Final = frozenset({"format", "path", "options", "schema", "map", "src", "dst", "table"})
_DELIMITERS: Final = {CSV: ",", TSV: "\t"}
_COLUMN: Final = re.compile(r"[\w .:/@#$-]+")
"""What may be the name of a column; all else in `map` is an expression of SQL."""


class SourceSpecError(InvalidInputError):
    """The description of a source of a load is not valid."""

    code = "OG-SOURCE-SPEC"
    hint = "the guide 'Load data' lists what a source may be"
    template = "source of {source}: {problem}"
    source: str
    problem: str


@dataclass(frozen=True)
class FileSource:
    """Files that hold rows of one type, and how they are read."""

    paths: tuple[str, ...]
    form: Format | None = None
    csv: CsvOptions | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of a property, where it has another name."""

    def options_of(self, form: Format) -> CsvOptions:
        """Return how a file of texts is written."""
        options = self.csv or CsvOptions(delimiter="")
        return options if options.delimiter else replace(options, delimiter=_DELIMITERS[form])


def is_path(source: object) -> bool:
    """Whether a source is a path."""
    return isinstance(source, str | os.PathLike)


def is_objects(source: object) -> bool:
    """Whether a source is a list of objects, or an empty list."""
    return isinstance(source, list | tuple) and all(
        isinstance(each, Mapping) for each in source[:1]
    )


def is_description(source: object) -> bool:
    """Whether a source is described, or is some paths."""
    is_paths = isinstance(source, list | tuple) and bool(source) and all(map(is_path, source))
    return is_path(source) or is_paths or isinstance(source, Mapping)


def checked_spec(name: str, source: Any, form: Format | None = None) -> dict[str, Any]:
    """Return a description as a dictionary; raise where it has something unknown."""
    if not isinstance(source, Mapping):
        spec: dict[str, Any] = {"path": source}
        return spec if form is None else spec | {"format": form.name}
    unknown = sorted(map(str, set(source) - SPEC_KEYS))
    is_described = not SPEC_KEYS.isdisjoint(source)
    if unknown and (is_described or nearest_name(unknown[0], SPEC_KEYS)):
        raise SourceSpecError(name, f"unknown entry '{unknown[0]}'{_right_entry(unknown[0])}")
    if ("path" in source) == ("table" in source):
        error = SourceSpecError(name, "a mapping is files: expected one of 'path' and 'table'")
        error.hint = "rows are a list of objects; `pandas.DataFrame(columns)` is a table of columns"
        raise error
    return dict(source)


def _right_entry(name: str) -> str:
    """Return what to write in place of an unknown entry of a description."""
    if name in OPTION_NAMES or name in OPTION_ALIASES:
        return f": it is one of the 'options', {{'options': {{'{name}': …}}}}"
    near = nearest_name(name, SPEC_KEYS)
    return f"; did you mean '{near}'?" if near else f": expected {', '.join(sorted(SPEC_KEYS))}"


def mapped_columns(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return column or expression of each property that a description names."""
    columns = {str(name): str(text) for name, text in dict(spec.get("map") or {}).items()}
    return columns | {end: str(spec[end]) for end in ("src", "dst") if spec.get(end)}


def spark_reason(source: object) -> str | None:
    """Return why only Spark can read a source, or None."""
    if type(source).__module__.partition(".")[0] == "pyspark":
        return "a DataFrame of Spark is read there"
    if not isinstance(source, Mapping):
        return None
    for key in ("table", "schema"):
        if source.get(key):
            return f"`{key}` is for Spark"
    form = source.get("format")
    if form is not None and form not in FORMAT_NAMES:
        return f"format '{form}' is one of Spark"
    for text in mapped_columns(source).values():
        if not _COLUMN.fullmatch(text):
            return f"'{text}' is an expression of SQL"
    return None


def file_source(entity_type: EntityType, source: Any, form: Format | None = None) -> FileSource:
    """Read the description of files of one type."""
    name = entity_type.name
    spec = checked_spec(name, source, form)
    reason = spark_reason(spec)
    if reason is not None:
        raise SourceSpecError(name, reason)
    path = spec["path"]
    paths: Sequence[Any] = [path] if is_path(path) else path
    if not paths or not all(is_path(each) for each in paths):
        raise SourceSpecError(name, f"'path' is {path!r}, expected a path or a list of paths")
    given = form if spec.get("format") is None else format_named(str(spec["format"]))
    options = spec.get("options")
    if options and given not in (None, CSV, TSV):
        raise SourceSpecError(name, "'options' are for CSV")
    try:
        csv = csv_options(options) if options else None
    except CsvOptionError as error:
        raise SourceSpecError(name, str(error)) from None
    columns = mapped_columns(spec)
    check_mapped(entity_type, columns)
    return FileSource(tuple(map(os.fspath, paths)), given, csv, columns)


def check_mapped(entity_type: EntityType, columns: Mapping[str, str]) -> None:
    """Raise where `map` fills a property that the type does not have."""
    known = {*entity_type.properties, "id", "src", "dst", "from", "to"}
    for name in columns:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; did you mean '{near}'?" if near else ""
            if columns[name] in known:
                hint = f": it has columns by property, {{'{columns[name]}': '{name}'}}"
            problem = f"'map' names the unknown property '{name}'{hint}"
            raise SourceSpecError(entity_type.name, problem)
