"""Power failures: what was not flushed is gone, at every moment of a write.

The recorded flushes of a store say what a disk surely holds (`support.power`). At every flush of a
write two images are built: one in which nothing else survived, and one in which every name did but
the bytes did not. Each is opened: the write is there wholly or not at all, and what a caller was
told is there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import pytest

from omnigraph import failpoints
from omnigraph.graph import Graph
from omnigraph.store import Store, connect
from omnigraph.store.background import Inline
from support.places import Place
from support.power import Image, Loss, Shadow
from support.sweep_jobs import GROUP, JOBS, JOBS_BY_NAME, Job
from support.sweeps import Archives, Sweep, check_heads, content_of, unswept

pytestmark = pytest.mark.usefixtures("disarmed")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives(str(tmp_path_factory.mktemp("archives")))


def durable_graph(place: Place, branch: str) -> tuple[Store, Graph]:
    # In one order, so that a phase has an end at which everything before it is flushed.
    store = replace(connect(place.uri, durability="full"), background=Inline())
    return store, unswept(store, branch)


@dataclass
class Failures:
    """The different images that power failures during one job leave."""

    shadow: Shadow
    images: dict[str, tuple[str, Image]] = field(default_factory=dict)

    def take(self, when: str) -> None:
        """Let the power fail now."""
        for loss in Loss:
            image = self.shadow.image(loss)
            digest = hashlib.sha256()
            for name, data in sorted(image.files.items()):
                digest.update(f"{name}\n{len(data)}\n".encode() + data)
            self.images.setdefault(digest.hexdigest(), (f"{loss} at {when}", image))


def failures_during(job: Job, place: Place) -> tuple[Failures, list[tuple[str, Image]]]:
    """Run a job to its end; return what power failures leave at every flush, and behind it."""
    store, graph = durable_graph(place, job.branch)
    failures = Failures(Shadow(store))
    failures.shadow.on_flush = lambda path: failures.take(f"the flush of {path}")
    job.run(graph)
    graph.close()
    failures.shadow.on_flush = None
    behind = [(f"{loss} after the answer", failures.shadow.image(loss)) for loss in Loss]
    return failures, behind


def check_image(swept: Sweep, place: Place, when: str) -> bool:
    """Open what a power failure left; return whether the job was done."""
    job = swept.job
    try:
        with place.open(job.branch) as graph:
            content = content_of(graph, job)
            assert content in swept.contents, "half a job"
            check_heads(graph)
            assert graph.recovery_status() == []
            rows = [row.operation_id for row in graph.recovery_list()]
            assert len(set(rows)) == len(rows)
            if content != swept.after:
                job.run(graph)
        again = place.open()
        assert content_of(again, job) == swept.after
        assert job.is_settled(again)
    except BaseException as problem:
        problem.add_note(f"{job.name}: {when}")
        raise
    return content == swept.after


def check_job(archives: Archives, job: Job, *, step: int) -> None:
    archive = archives.of(job)
    swept = Sweep.measured(job, archive.restored())
    failures, behind = failures_during(job, archive.restored())
    done = [
        check_image(swept, archive.restored(image.files), when)
        for when, image in list(failures.images.values())[::step]
    ]
    for when, image in behind:
        assert check_image(swept, archive.restored(image.files), when), "an acknowledged write"
    assert True in done
    assert False in done


@pytest.mark.parametrize("name", ["insert", "schema apply", "merge three ways"])
def test_a_power_failure_leaves_all_or_nothing_and_loses_no_answer(
    archives: Archives, name: str
) -> None:
    check_job(archives, JOBS_BY_NAME[name], step=3)


def test_a_power_failure_during_a_group_leaves_its_first_members(archives: Archives) -> None:
    check_job(archives, GROUP, step=12)


@pytest.mark.slow
@pytest.mark.parametrize("job", [*JOBS, GROUP], ids=lambda job: job.name)
def test_a_power_failure_at_any_flush_of_any_job_loses_no_answer(
    archives: Archives, job: Job
) -> None:
    check_job(archives, job, step=1)


PHASES = [
    "write.post_stage",
    "recovery.sidecar_write",
    "write.post_phase_b_pre_manifest_commit",
    "graph_publish.after_commit_append",
]
"""Where a phase ends: what it has made is durable before the next one relies on it."""


DERIVED = ("_graph_commits", "_graph_commit_actors", "_checksums")
"""Tables that members of a group write when they are answered, while others are committed."""


@pytest.mark.parametrize("job", [*JOBS, GROUP], ids=lambda job: job.name)
def test_every_phase_is_durable_before_the_next_one_begins(archives: Archives, job: Job) -> None:
    store, graph = durable_graph(archives.of(job).restored(), job.branch)
    shadow = Shadow(store)
    unflushed: dict[str, set[str]] = {}
    flushes: dict[str, int] = {}

    def look(point: str) -> None:
        found = shadow.unflushed()
        of_others = {path for path in found if job is GROUP and path.startswith(DERIVED)}
        unflushed[point] = found - of_others
        flushes[point] = len(shadow.flushed)

    for point in PHASES:
        failpoints.arm(point, partial(look, point))
    job.run(graph)
    assert unflushed.keys() >= set(PHASES[1:]), "a schema apply stages inside its lock"
    assert not any(unflushed.values()), unflushed
    counts = {b: flushes[b] - flushes[a] for a, b in pairwise(unflushed)}
    if not job.moves_tables:
        assert counts.pop("write.post_phase_b_pre_manifest_commit") == 0
    assert min(counts.values()) >= 2, f"a file and its directory in every phase: {counts}"
    graph.close()
    assert shadow.unflushed() == set(), "when the caller hears of it"


def test_without_flushes_a_power_failure_takes_the_answer(archives: Archives) -> None:
    """The simulation can tell: with flushes that do nothing, an acknowledged write is lost."""
    job = JOBS_BY_NAME["insert"]
    archive = archives.of(job)
    swept = Sweep.measured(job, archive.restored())
    store, graph = durable_graph(archive.restored(), job.branch)
    shadow = Shadow(store)
    lost = shadow.image(Loss.FORGETFUL)
    store.flusher.sync = lambda _path: None  # type: ignore[union-attr]  # a `DiskFlusher` here
    job.run(graph)
    assert shadow.image(Loss.FORGETFUL).files == lost.files
    assert not check_image(swept, archive.restored(lost.files), "without flushes")
