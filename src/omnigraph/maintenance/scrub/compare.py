"""Compares files with their checksums, several at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.maintenance.scrub.files import DatasetFiles, Found
from omnigraph.maintenance.scrub.report import Damage, Problem, ScrubReport, ScrubRequest
from omnigraph.manifest import Repository
from omnigraph.manifest.checksums import FileSum, Sums
from omnigraph.manifest.layout import MANIFEST
from omnigraph.store.digests import check_word, hash_file, is_hash, tag_digest
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.records import FileKind

ALWAYS_READ: Final = frozenset({FileKind.VERSION, FileKind.REF})


@dataclass(frozen=True)
class Look:
    """The result of checking one file."""

    problem: Found | None = None
    is_known: bool = True
    """Whether the file has a checksum that applies to this storage."""
    is_compared: bool = False
    bytes_read: int = 0


class Comparer:
    """Finds files, compares them, and counts what it has compared."""

    def __init__(
        self, repository: Repository, request: ScrubRequest, pool: ThreadPoolExecutor
    ) -> None:
        self._repository = repository
        self._root = repository.store.settings.root
        self._request = request
        self._pool = pool
        day = datetime.fromtimestamp(repository.clock.now_us() / 1_000_000, UTC).date()
        self._seed = day.isoformat() if request.seed is None else request.seed
        self._files = self._compared = self._bytes = 0
        self._without: list[str] = []
        self.sums_problem: Found | None = None
        """What is wrong with the checksums themselves."""

    def files_of(self, location: str) -> DatasetFiles:
        """Return the files of a dataset, none of them checked yet."""
        present = {info.path: info for info in self._repository.store.objects.list(location)}
        return DatasetFiles(location, present, self._sums(location).by_path)

    def check(self, files: DatasetFiles, paths: Mapping[str, FileKind]) -> None:
        """Compare files that were not checked yet, several at a time."""
        fresh = [path for path in sorted(paths) if path not in files.kinds]
        files.kinds |= {path: paths[path] for path in fresh}

        def compare(path: str) -> Look:
            return self._compare(files, path)

        for path, look in zip(fresh, self._pool.map(compare, fresh), strict=True):
            self.count(look)
            if look.problem is not None:
                files.problems[path] = look.problem
            elif not look.is_known:
                self._without.append(path)

    def count(self, look: Look) -> None:
        """Count one more file that the graph needs."""
        self._files += 1
        self._compared += look.is_compared
        self._bytes += look.bytes_read

    def is_sampled(self, path: str) -> bool:
        """Whether the bytes of a file are read."""
        share = self._request.share
        return share >= 1 or check_word(f"{self._seed}\0{path}") < share * 2**64

    def report(self, damaged: Iterable[Damage]) -> ScrubReport:
        """Return what was checked and found; give files a checksum if that is asked for."""
        adopted = self._adopt()
        return ScrubReport(
            files=self._files,
            compared=self._compared,
            bytes_read=self._bytes,
            share=self._request.share,
            seed=self._seed,
            damaged=tuple(sorted(damaged, key=lambda damage: damage.path)),
            without_checksum=() if adopted else tuple(sorted(self._without)),
            adopted=adopted,
        )

    def _sums(self, location: str) -> Sums:
        try:
            sums = self._repository.checksums.sums(location)
        except OmnigraphError as error:
            self.sums_problem = (Problem.UNREADABLE, str(error))
            return Sums()
        if sums.damaged_rows:
            detail = f"{sums.damaged_rows} rows about `{location}` are not what was written"
            self.sums_problem = self.sums_problem or (Problem.CONTENT, detail)
        return sums

    def _compare(self, files: DatasetFiles, path: str) -> Look:
        info, known = files.present.get(path), files.sums.get(path)
        if info is None:
            return Look((Problem.MISSING, "the file is not there"))
        if known is None or is_hash(known.digest) != self._root.is_local:
            # The tag of an object cannot be compared with the checksum of a local file.
            return Look(is_known=False)
        if info.size != known.size:
            return Look((Problem.SIZE, f"{info.size} bytes instead of {known.size}"))
        if not is_hash(known.digest):
            is_same = tag_digest(info.tag) == known.digest
            problem = None if is_same else (Problem.CONTENT, "the object was replaced")
            return Look(problem, is_compared=True)
        is_read = (
            files.location == MANIFEST or files.kinds[path] in ALWAYS_READ or self.is_sampled(path)
        )
        return self._compare_bytes(path, known) if is_read else Look()

    def _compare_bytes(self, path: str, known: FileSum) -> Look:
        try:
            size, digest = hash_file(self._root, path)
        except ObjectNotFoundError:
            return Look((Problem.MISSING, "the file is not there"))
        except OmnigraphError as error:
            return Look((Problem.UNREADABLE, str(error)))
        is_same = digest == known.digest
        problem = None if is_same else (Problem.CONTENT, "the bytes are not what was written")
        return Look(problem, is_compared=True, bytes_read=size)

    def _adopt(self) -> int:
        if not self._request.adopt or not self._without:
            return 0
        return self._repository.checksums.adopt(sorted(self._without))
