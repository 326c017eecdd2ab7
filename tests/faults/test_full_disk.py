"""A full disk and a disk that refuses to be written, in the middle of every phase.

The disk is a small file system of its own: it is filled to the brim, or a read-only view is laid
over it. The caller gets an error of the right kind, everything can still be read, and once the
cause is gone the next write works, through the same handle.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.cli.app import run
from omnigraph.errors import DeniedError, OmnigraphError, OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.maintenance.cleanup.report import DatasetCleanup
from omnigraph.manifest import OpenMode
from omnigraph.manifest.layout import MANIFEST
from omnigraph.store.errors import StorageFullError, StoragePermissionError
from omnigraph.write.commit.phases import WriteUnsettledError
from support.places import Place
from support.sweep_jobs import JOBS_BY_NAME, Job, prepare
from support.sweeps import Sweep, attempt, check_heads, content_of

pytestmark = pytest.mark.usefixtures("disarmed")

_SIZE = "24m"
_CHUNKS = (1 << 20, 1 << 12, 1)

JOBS = [JOBS_BY_NAME[name] for name in ("insert", "load merge", "schema apply", "optimize")]
FIRST = ["start", "write.post_stage", "write.turn_taken"]
FIRST_OF_SCHEMA_APPLY = ["start", "schema_apply.reserved", "schema_apply.locked"]
THEN = [
    "recovery.sidecar_write",
    "write.after_first_table",
    "write.post_phase_b_pre_manifest_commit",
    "graph_publish.after_commit_append",
]
MOMENTS = [
    (job, moment)
    for job in JOBS
    for moment in (FIRST_OF_SCHEMA_APPLY if job.name == "schema apply" else FIRST) + THEN
]
"""From the very beginning, and at every arrow between two phases."""


class Disk:
    """A file system of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"
        self._layers = 0

    def mount(self) -> None:
        self.root.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(self.root))
        self._layers = 1

    def fill(self) -> None:
        """Take every byte that is left."""
        with self._ballast.open("ab", buffering=0) as file:
            for chunk in _CHUNKS:
                with suppress(OSError):
                    while True:
                        file.write(b"x" * chunk)

    def refuse(self) -> None:
        """Lay a read-only view of itself over the disk; open files stay writable below it."""
        _run("mount", "--bind", str(self.root), str(self.root))
        self._layers += 1
        # Refused for as long as somebody has a file open for writing in the new view.
        for _ in range(1_000):
            with suppress(subprocess.CalledProcessError):
                _run("mount", "-o", "remount,bind,ro", str(self.root))
                return
        raise AssertionError("the disk is never at rest")

    def relent(self) -> None:
        """Take the cause away."""
        while self._layers > 1:
            _run("umount", "-l", str(self.root))
            self._layers -= 1
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        while self._layers:
            _run("umount", "-l", str(self.root))
            self._layers -= 1


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root and mount(8)")
    try:
        disk.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting is not allowed here: {error.stderr.decode().strip()}")
    yield disk
    disk.unmount()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(str(tmp_path_factory.mktemp("template") / "graph"))
    prepare(place)
    return place


@pytest.fixture(scope="module")
def swept(template: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    found = {}
    for job in JOBS:
        copy = Place(str(tmp_path_factory.mktemp("measure") / "graph"))
        shutil.copytree(template.uri, copy.uri)
        found[job.name] = Sweep.measured(job, copy)
    return found


@pytest.mark.parametrize("cause", ["full", "refused"])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0].name}-{moment[1]}")
def test_trouble_in_any_phase_is_told_and_passes(
    template: Place,
    swept: dict[str, Sweep],
    disk: Disk,
    moment: tuple[Job, str],
    cause: str,
) -> None:
    job, point = moment
    place = Place(str(disk.root / "graph"))
    shutil.copytree(template.uri, place.uri)
    expected = swept[job.name]
    make_trouble = disk.fill if cause == "full" else disk.refuse
    with place.open() as graph:
        if point == "start":
            make_trouble()
        else:
            failpoints.arm(point, make_trouble)
        error = attempt(graph, job)
        failpoints.disarm()
        check_kind(error, cause, point)
        check_readable(place, graph, expected)
        disk.relent()
        graph.refresh()
        if content_of(graph, job) == expected.before:
            job.run(graph)
        assert content_of(graph, job) == expected.after
        assert graph.recovery_status() == []
    check_heads(place.open())


def check_kind(error: BaseException | None, cause: str, point: str) -> None:
    """The error is of the kind of its cause, or says that the outcome is open."""
    if error is None:
        assert point == "graph_publish.after_commit_append", (
            "only what is published already can succeed"
        )
        return
    assert isinstance(error, OmnigraphError)
    kind = StorageFullError if cause == "full" else StoragePermissionError
    if isinstance(error, OutcomeUnknownError):
        assert point != "start", "before the write has begun nothing is open"
        if isinstance(error, WriteUnsettledError):
            assert isinstance(error.__cause__, kind)
    else:
        assert isinstance(error, kind), repr(error)
    assert str(error).count("`") >= 2, "the message names a path"


def check_readable(place: Place, graph: Graph, expected: Sweep) -> None:
    """The graph says what it said before, or all of what is new, to everybody."""
    same = content_of(graph, expected.job)
    assert same in (expected.before, expected.after)
    other = place.open(mode=OpenMode.READ_ONLY)
    assert content_of(other, expected.job) == same


def test_a_full_disk_stops_recovery_with_its_own_kind_and_the_next_open_finishes(
    template: Place, swept: dict[str, Sweep], disk: Disk
) -> None:
    place = Place(str(disk.root / "graph"))
    shutil.copytree(template.uri, place.uri)
    job = JOBS_BY_NAME["insert"]
    failpoints.arm("write.after_first_table", disk.fill)
    attempt(place.open(), job)
    failpoints.disarm()
    with pytest.raises(StorageFullError):
        place.open()
    disk.relent()
    graph = place.open()
    assert content_of(graph, job) == swept[job.name].before
    assert len(graph.recovery_list()) == 1


def test_a_read_only_disk_can_be_opened_for_reading(
    template: Place, swept: dict[str, Sweep], disk: Disk
) -> None:
    place = Place(str(disk.root / "graph"))
    shutil.copytree(template.uri, place.uri)
    disk.refuse()
    job = JOBS_BY_NAME["insert"]
    assert content_of(place.open(mode=OpenMode.READ_ONLY), job) == swept[job.name].before
    with pytest.raises(OSError, match="Read-only") as caught:
        (disk.root / "probe").touch()
    assert caught.value.errno == errno.EROFS
    with pytest.raises(DeniedError):
        place.open().mutate('query q() { insert Person { name: "x" } }')


@pytest.mark.parametrize("orphans", [False, True])
def test_a_cleanup_of_a_disk_that_may_only_be_read_says_so_for_every_dataset(
    template: Place, disk: Disk, capsys: pytest.CaptureFixture[str], *, orphans: bool
) -> None:
    place = Place(str(disk.root / "graph"))
    shutil.copytree(template.uri, place.uri)
    with place.open() as graph:
        for number in range(3):
            rows = b'{"type": "Person", "data": {"name": "%d"}}' % number
            graph.load(rows, mode="merge")
    if orphans:
        for folder in ("nodes", "__recovery"):
            (Path(place.uri) / folder).mkdir(exist_ok=True)
            (Path(place.uri) / folder / ".og-put-0").touch()
    disk.refuse()
    with place.open() as graph:
        due = {
            d.type_key for d in graph.cleanup(keep_versions=1, orphan_age_s=0).datasets if goes(d)
        }
        result = graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert MANIFEST in due
    assert ("temporary files" in due) is orphans
    assert due <= {each.type_key for each in result.failed}
    assert {each.error_code for each in result.failed} == {"OG-STORE-PERMISSION"}
    assert not any(map(goes, result.failed))
    words = ["cleanup", place.uri, "--keep", "1", "--orphan-age", "0s", "--confirm"]
    for form in ([], ["--json"]):
        assert run([*words, *form]) == 1
        assert "OG-STORE-PERMISSION" in capsys.readouterr().out
    disk.relent()
    assert run(words) == 0


def goes(dataset: DatasetCleanup) -> bool:
    return dataset.old_versions_removed > 0 or dataset.files_removed > 0
