"""Files of rows of one type become converted columns, whatever their format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final, TypeAlias

import pyarrow as pa

from omnigraph.names import nearest_name
from omnigraph.schema import Catalog, EntityType
from omnigraph.schema.values.decode import BATCH_BYTES
from omnigraph.write.load.formats.columnar import columnar_batches
from omnigraph.write.load.formats.csv_rows import BadRow, read_csv
from omnigraph.write.load.formats.description import FileSource, SourceSpecError
from omnigraph.write.load.formats.files import InputFile, find_files, open_stream
from omnigraph.write.load.formats.json_array import BrokenArrayError, array_blocks
from omnigraph.write.load.formats.json_rows import RowReader
from omnigraph.write.load.formats.kinds import (
    CSV,
    FORMATS,
    JSON,
    Format,
    find_format,
    suffixes_of,
)
from omnigraph.write.load.input.decode import Refuse
from omnigraph.write.load.input.tables import column_batch, column_problems, empty_rows
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers

_CELLS_RULE: Final = "cells"
_Placed: TypeAlias = tuple[pa.RecordBatch, "int | Integers"]
"""A batch, and the position of its first row or of every row."""


def files_of(source: FileSource, options: Mapping[str, str] | None = None) -> list[InputFile]:
    """Return the files that hold the rows of a source."""
    forms = FORMATS if source.form is None else (source.form,)
    return find_files(source.paths, suffixes_of(forms), options)


def format_of(
    file: InputFile, source: FileSource, options: Mapping[str, str] | None = None
) -> Format:
    """Return the format of a file of a source."""
    if source.csv is not None and source.csv.encoding != "utf-8":
        # Other encodings of text look like binary data.
        return source.form or CSV
    return find_format(file, source.form, options)


def position_unit(form: Format) -> str:
    """Return the unit in which positions in a file are counted."""
    if form is JSON:
        return "record"
    return "line" if form.is_text else "row"


def file_rows(
    entity_type: EntityType,
    file: InputFile,
    source: FileSource,
    form: Format,
    *,
    catalog: Catalog,
    first: int,
    refuse: Refuse,
    options: Mapping[str, str] | None = None,
) -> Iterator[ColumnBatch]:
    """Yield the rows of a file; the first one has the position `first`.

    A file whose columns are not those of the type is refused once, and yields nothing.
    """
    if form.is_records:
        yield from _objects(
            entity_type,
            file,
            source,
            form,
            catalog=catalog,
            first=first,
            refuse=refuse,
            options=options,
        )
        return
    if form.is_text:
        batches = _text_batches(
            file,
            source,
            form,
            first=first,
            bad_row=_refused_row(entity_type, first, refuse),
            options=options,
        )
    else:
        batches = _numbered_batches(columnar_batches(file.path, form.name, options), first)
    is_checked = False
    for batch, positions in batches:
        whole = prepared(batch, entity_type, file, source.columns)
        problems = [] if is_checked else column_problems(entity_type, whole.schema.names)
        for problem in problems:
            refuse(problem, None)
        if problems:
            return
        is_checked = True
        yield column_batch(entity_type, whole, positions, texts_in(whole, file, form))


def columns_in(
    entity_type: EntityType,
    file: InputFile,
    source: FileSource,
    form: Format,
    options: Mapping[str, str] | None = None,
) -> list[str] | None:
    """Return the columns of a file; None for objects, each of which has its own members."""
    if form.is_records:
        return None
    batches = (
        _text_batches(file, source, form, first=1, bad_row=lambda *_: None, options=options)
        if form.is_text
        else _numbered_batches(columnar_batches(file.path, form.name, options), 1)
    )
    batch, _ = next(batches)
    return list(prepared(batch, entity_type, file, source.columns).schema.names)


def prepared(
    batch: pa.RecordBatch, entity_type: EntityType, file: InputFile, columns: Mapping[str, str]
) -> pa.RecordBatch:
    """Return a batch with the columns of its partitions, under the names of properties."""
    for name, text in file.partitions:
        values = pa.repeat(pa.scalar(text, pa.utf8()), batch.num_rows)
        batch = batch.append_column(name, values)
    return renamed(batch, entity_type, columns) if columns else batch


def texts_in(batch: pa.RecordBatch, file: InputFile, form: Format) -> frozenset[str]:
    """Return the columns that hold texts which stand for values."""
    if form.is_text:
        return frozenset(batch.schema.names)
    return frozenset(name for name, _ in file.partitions)


def renamed(
    batch: pa.RecordBatch, entity_type: EntityType, columns: Mapping[str, str]
) -> pa.RecordBatch:
    """Take mapped columns, and others that have the name of a property; leave the rest out."""
    names = batch.schema.names
    for column in columns.values():
        if column not in names:
            near = nearest_name(column, names)
            hint = f"did you mean '{near}'?" if near else f"there are {', '.join(names)}"
            problem = f"'map' names the column '{column}', which is not there: {hint}"
            raise SourceSpecError(entity_type.name, problem)
    taken = list(columns.items())
    used = set(columns.values())
    known = {*entity_type.properties, "id", "src", "dst", "from", "to"} - columns.keys()
    taken += [(name, name) for name in names if name in known and name not in used]
    arrays = [batch[column] for _, column in taken]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in taken])


def _numbered_batches(batches: Iterator[pa.RecordBatch], first: int) -> Iterator[_Placed]:
    for batch in batches:
        yield batch, first
        first += batch.num_rows


def _refused_row(entity_type: EntityType, first: int, refuse: Refuse) -> BadRow:
    def bad_row(line: int, text: str, problem: str) -> None:
        violation = Violation(
            position=first + line - 1,
            type=entity_type.name,
            property=None,
            value=None,
            rule=_CELLS_RULE,
            code=codes.CELLS,
            message=f"{entity_type.name}: {problem}",
        )
        refuse(violation, text)

    return bad_row


def _text_batches(
    file: InputFile,
    source: FileSource,
    form: Format,
    *,
    first: int,
    bad_row: BadRow,
    options: Mapping[str, str] | None,
) -> Iterator[_Placed]:
    with open_stream(file.path, options) as opened:
        for rows in read_csv(file.path, opened, source.options_of(form), bad_row):
            yield rows.batch, rows.lines + (first - 1)


def _objects(
    entity_type: EntityType,
    file: InputFile,
    source: FileSource,
    form: Format,
    *,
    catalog: Catalog,
    first: int,
    refuse: Refuse,
    options: Mapping[str, str] | None,
) -> Iterator[ColumnBatch]:
    reader = RowReader(
        entity_type,
        catalog,
        refuse,
        source=file.path,
        columns=source.columns,
        constants=file.partitions,
    )
    yield column_batch(entity_type, empty_rows(entity_type), first)
    position = first
    with open_stream(file.path, options) as opened:
        try:
            for text in array_blocks(opened) if form is JSON else line_blocks(opened):
                yield from reader.lines(text, position)
                position += text.count(b"\n")
        except BrokenArrayError as error:
            refuse(error.violation(first), None)


def line_blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, some at a time."""
    while text := source.read(BATCH_BYTES):
        yield text if text.endswith(b"\n") else text + source.readline()
