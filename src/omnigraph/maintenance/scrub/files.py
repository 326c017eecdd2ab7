"""The files of one dataset: as they are, and as they were written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.maintenance.scrub.report import Problem
from omnigraph.maintenance.scrub.rows import rows_file_of
from omnigraph.manifest.checksums import FileSum
from omnigraph.manifest.layout import TABLE_FOLDERS
from omnigraph.store.lance.layout import VERSIONS_DIR, lineage_path, manifest_path, manifest_version
from omnigraph.store.lance.packs import pack_span
from omnigraph.store.objects.protocol import ObjectInfo
from omnigraph.store.records import FileKind

Found: TypeAlias = tuple[Problem, str]
"""What is wrong with a file, and the details."""

_BLOB_SUFFIX: Final = ".blob"


@dataclass
class DatasetFiles:
    """A dataset: its files as they are, as they were written, and what is wrong with them."""

    location: str
    present: dict[str, ObjectInfo]
    sums: Mapping[str, FileSum]
    kinds: dict[str, FileKind] = field(default_factory=dict)
    """The files that were checked."""
    problems: dict[str, Found] = field(default_factory=dict)
    packed: dict[str | None, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """The versions that are in packs, by branch, with the path of the pack."""

    @property
    def is_table(self) -> bool:
        """Whether it holds the rows of a type."""
        return self.location.partition("/")[0] in TABLE_FOLDERS

    def path_of(self, branch: str | None, version: int) -> str:
        """Return the file that holds a version."""
        path = manifest_path(self.location, branch, version)
        return path if path in self.present else self.packed[branch].get(version, path)

    def packs(self, branch: str | None) -> list[str]:
        """Return the packs of a lineage, and those that have only a checksum."""
        directory = f"{lineage_path(self.location, branch)}/{VERSIONS_DIR}/"
        paths = {path for path in (*self.present, *self.sums) if path.startswith(directory)}
        return sorted(path for path in paths if pack_span(path.removeprefix(directory)))

    def versions(self, branch: str | None) -> set[int]:
        """Return the versions of a lineage of which there is a file."""
        loose = version_numbers(self.present, self.location, branch)
        return loose | self.packed[branch].keys()

    def lost_versions(self, branch: str | None) -> set[int]:
        """Return the versions of a lineage of which there is only a checksum."""
        return version_numbers(self.sums, self.location, branch) - self.versions(branch)

    def sound(self, branch: str | None, versions: Iterable[int]) -> set[int]:
        """Return those versions whose own file is there and undamaged."""
        return {
            version
            for version in versions
            if (path := self.path_of(branch, version)) in self.present and path not in self.problems
        }

    def blobs(self) -> dict[str, list[str]]:
        """Return the files of large values, by the file of rows that they belong to."""
        found: dict[str, list[str]] = defaultdict(list)
        for path in {*self.present, *self.sums}:
            if path.endswith(_BLOB_SUFFIX):
                found[rows_file_of(path)].append(path)
        return found


def version_numbers(paths: Iterable[str], location: str, branch: str | None) -> set[int]:
    """Return the versions of a lineage that have a file of their own among some paths."""
    directory = f"{lineage_path(location, branch)}/{VERSIONS_DIR}/"
    names = (path.removeprefix(directory) for path in paths if path.startswith(directory))
    return {version for name in names if (version := manifest_version(name)) is not None}
