"""Makes fragments of a target of those of a source."""

from __future__ import annotations

import pyarrow as pa
from lance import FragmentMetadata, LanceOperation
from lance.fragment import RowIdSequence

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import InvalidScanError
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.layout import next_row_id
from omnigraph.store.lance.links.copies import Copies
from omnigraph.store.lance.links.numbers import Numbered, Part, number_rows
from omnigraph.store.lance.maintenance import highest_fragment_id
from omnigraph.store.lance.staging import staged_record
from omnigraph.store.records import (
    LinkedRows,
    OperationKind,
    RowCounts,
    StagedFile,
    StagedTransaction,
)


@dataclass(frozen=True)
class Linker:
    """Makes fragments of a target of those of a source."""

    base: LanceHandle
    rows: LinkedRows
    copies: Copies

    def staged(self) -> StagedTransaction:
        """Copy the files, and stage all fragments that come, change and go as one update."""
        fragments, files = self._fragments()
        trimmed = [self._trimmed(*numbers) for numbers in self.rows.trimmed]
        files += [file for _, file in trimmed]
        self.copies.make(files)
        return staged_record(
            self.base.at,
            LanceOperation.Update(
                removed_fragment_ids=list(self.rows.gone),
                updated_fragments=[fragment for fragment, _ in trimmed],
                new_fragments=fragments,
                fields_modified=[],
            ),
            kind=OperationKind.UPDATE,
            files=tuple(files),
            counts=RowCounts(self.rows.inserted, self.rows.updated, len(self.rows.deleted)),
        )

    def _fragments(self) -> tuple[list[FragmentMetadata], list[StagedFile]]:
        """Return the fragments that come, and their files."""
        source = self.copies.source
        next_id = next_row_id(self.base.dataset._ds.serialized_manifest())
        parts = [
            Part(source.fragment(number).metadata, source.row_ids(number).to_numpy())
            for number in self.rows.fragment_ids
        ]
        numbered = number_rows(parts, self.rows.first_new_row_id, next_id)
        if numbered is None:
            raise InvalidScanError(path=self.base.at.location, reason="linked rows have no ids")
        made: list[FragmentMetadata] = []
        files: list[StagedFile] = []
        first_id = highest_fragment_id(self.base.dataset) + 1
        for number, each in enumerate(numbered, first_id):
            fragment, needed = self._fragment(number, each)
            made.append(fragment)
            files += needed
        return made, files

    def _fragment(
        self, number: int, numbered: Numbered
    ) -> tuple[FragmentMetadata, list[StagedFile]]:
        before = numbered.part.fragment
        data, files = self.copies.data_files(before, keeps_names=numbered.keeps_name)
        deletion = row_ids = None
        if before.deletion_file is not None:
            deletion, listed = self.copies.deletion(before, number)
            files.append(listed)
        if not numbered.is_numbered_by_commit:
            ids = pa.array(numbered.row_ids, pa.uint64())
            row_ids = RowIdSequence(ids).to_inline_metadata()
        return FragmentMetadata(number, data, before.physical_rows, deletion, row_ids), files

    def _trimmed(self, number: int, source_number: int) -> tuple[FragmentMetadata, StagedFile]:
        """Return a fragment of the target without the rows that the source has deleted."""
        fragment = self.base.fragment(number).metadata
        ours = self.copies.source.fragment(source_number).metadata
        fragment.deletion_file, file = self.copies.deletion(ours, number)
        return fragment, file
