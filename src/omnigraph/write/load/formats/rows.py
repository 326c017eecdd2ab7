"""Files of rows of one type become converted columns, whatever their format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import BinaryIO, Final, TypeAlias

import pyarrow as pa

from omnigraph.dataclass import dataclass
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
    TSV,
    Format,
    by_suffix,
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
        return source.form or (TSV if by_suffix(file.name) is TSV else CSV)
    return find_format(file, source.form, options)


def position_unit(form: Format) -> str:
    """Return the unit in which positions in a file are counted."""
    if form is JSON:
        return "record"
    return "line" if form.is_text else "row"


@dataclass(frozen=True)
class RowFile:
    """A file of rows of one type, and how it is read."""

    entity_type: EntityType
    file: InputFile
    source: FileSource
    form: Format
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of the storage that it lies in."""

    def rows(self, catalog: Catalog, first: int, refuse: Refuse) -> Iterator[ColumnBatch]:
        """Yield the rows; the first one has the position `first`.

        A file whose columns are not those of the type is refused once, and yields nothing.
        """
        if self.form.is_records:
            yield from self._objects(catalog, first, refuse)
            return
        is_checked = False
        for batch, positions in self._batches(first, refuse):
            whole = self._prepared(batch)
            problems = [] if is_checked else column_problems(self.entity_type, whole.schema.names)
            for problem in problems:
                refuse(problem, None)
            if problems:
                return
            is_checked = True
            texts = texts_in(whole, self.file, self.form)
            yield column_batch(self.entity_type, whole, positions, texts)

    def columns(self) -> list[str] | None:
        """Return the columns; None for objects, each of which has its own members."""
        if self.form.is_records:
            return None
        batch, _ = next(self._batches(1, lambda *_: None))
        return list(self._prepared(batch).schema.names)

    def _prepared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return prepared(batch, self.entity_type, self.file, self.source.columns)

    def _batches(self, first: int, refuse: Refuse) -> Iterator[_Placed]:
        path = self.file.path
        if not self.form.is_text:
            for batch in columnar_batches(path, self.form.name, self.options):
                yield batch, first
                first += batch.num_rows
            return
        bad_row = _refused_row(self.entity_type, first, refuse)
        with open_stream(path, self.options) as opened:
            for rows in read_csv(path, opened, self.source.options_of(self.form), bad_row):
                yield rows.batch, rows.lines + (first - 1)

    def _objects(self, catalog: Catalog, first: int, refuse: Refuse) -> Iterator[ColumnBatch]:
        reader = RowReader(
            self.entity_type,
            catalog,
            refuse,
            source=self.file.path,
            columns=self.source.columns,
            constants=self.file.partitions,
        )
        yield column_batch(self.entity_type, empty_rows(self.entity_type), first)
        position = first
        with open_stream(self.file.path, self.options) as opened:
            try:
                for text in array_blocks(opened) if self.form is JSON else line_blocks(opened):
                    yield from reader.lines(text, position)
                    position += text.count(b"\n")
            except BrokenArrayError as error:
                refuse(error.violation(first), None)


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


def line_blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, some at a time."""
    while text := source.read(BATCH_BYTES):
        yield text if text.endswith(b"\n") else text + source.readline()
