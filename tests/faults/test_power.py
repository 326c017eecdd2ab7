"""Power failures: what was not flushed is gone, at every moment of a write.

The recorded flushes of a store say what a disk surely holds (`support.power`). At every flush of a
write two images are built: one in which nothing else survived, and one in which every name did but
the bytes did not. Each is opened: the write is there wholly or not at all, and what a caller was
told is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.repository import assemble
from omnigraph.recovery import failpoints
from omnigraph.store import Store, connect
from omnigraph.store.beside import InTurn
from support.places import Place
from support.power import Image, Loss, Shadow
from support.sweeps import JOBS, JOBS_BY_NAME, Job, Sweep, check_heads, content_of, copies, prepare

ON_MAIN = [job for job in JOBS if job.branch == "main"]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(str(tmp_path_factory.mktemp("template") / "graph"))
    prepare(place)
    return place


def durable_graph(place: Place) -> tuple[Store, Graph]:
    # In one order, so that a phase has an end at which everything before it is flushed.
    store = replace(connect(place.uri, durability="full"), beside=InTurn())
    repository = assemble(store, SystemClock())
    graph = Graph(
        repository,
        mode=OpenMode.READ_WRITE,
        incarnation=MAIN_INCARNATION,
        auto_optimize=False,
    )
    return store, graph


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


def failures_during(job: Job, place: Place) -> Failures:
    """Run a job to its end and collect what a power failure would have left at every flush."""
    store, graph = durable_graph(place)
    failures = Failures(Shadow(store))
    failures.shadow.on_flush = lambda path: failures.take(f"the flush of {path}")
    job.run(graph)
    graph.close()
    failures.shadow.on_flush = None
    return failures


def open_image(image: Image, root: Path) -> Place:
    image.write(root)
    return Place(str(root))


def check_image(swept: Sweep, place: Place, when: str) -> bool:
    """Open what a power failure left; return whether the job was done."""
    try:
        with place.open() as graph:
            content = content_of(graph, swept.job)
            assert content in (swept.before, swept.after), "half a job"
            check_heads(graph)
            assert graph.recovery_status() == []
            rows = [row.operation_id for row in graph.recovery_list()]
            assert len(set(rows)) == len(rows)
            if content == swept.before:
                swept.job.run(graph)
        assert content_of(place.open(), swept.job) == swept.after
    except BaseException as problem:
        problem.add_note(f"{swept.job.name}: {when}")
        raise
    return content == swept.after


def check_job(template: Place, tmp_path: Path, job: Job, *, step: int) -> None:
    places = copies(template, tmp_path / "copies")
    swept = Sweep.measured(job, next(places))
    failures = failures_during(job, next(places))
    done = []
    for number, (when, image) in enumerate(list(failures.images.values())[::step]):
        place = open_image(image, tmp_path / f"image{number}")
        done.append(check_image(swept, place, when))
    for loss in Loss:
        place = open_image(failures.shadow.image(loss), tmp_path / f"acknowledged {loss}")
        assert check_image(swept, place, f"{loss} after the answer"), "an acknowledged write"
    assert True in done
    assert False in done


@pytest.mark.parametrize("name", ["insert", "schema apply"])
def test_a_power_failure_leaves_all_or_nothing_and_loses_no_answer(
    template: Place, tmp_path: Path, name: str
) -> None:
    check_job(template, tmp_path, JOBS_BY_NAME[name], step=3)


@pytest.mark.slow
@pytest.mark.parametrize("job", ON_MAIN, ids=lambda job: job.name)
def test_a_power_failure_at_any_flush_of_any_job_loses_no_answer(
    template: Place, tmp_path: Path, job: Job
) -> None:
    check_job(template, tmp_path, job, step=1)


PHASES = ["write.post_stage", "write.sidecar_written", "write.phase_b_done", "write.published"]
"""Where a phase ends: what it has made is durable before the next one relies on it."""


@pytest.mark.parametrize("job", ON_MAIN, ids=lambda job: job.name)
def test_every_phase_is_durable_before_the_next_one_begins(
    template: Place, tmp_path: Path, job: Job
) -> None:
    place = next(copies(template, tmp_path))
    store, graph = durable_graph(place)
    shadow = Shadow(store)
    unflushed: dict[str, set[str]] = {}
    flushes: dict[str, int] = {}

    def look(point: str) -> None:
        unflushed[point] = shadow.unflushed()
        flushes[point] = len(shadow.flushed)

    for point in PHASES:
        failpoints.arm(point, partial(look, point))
    job.run(graph)
    assert unflushed.keys() >= set(PHASES[1:]), "a schema apply stages inside its turn"
    assert not any(unflushed.values()), unflushed
    counts = [flushes[b] - flushes[a] for a, b in pairwise(unflushed)]
    assert min(counts) >= 2, f"a file and its directory in every phase: {counts}"
    graph.close()
    assert shadow.unflushed() == set(), "when the caller hears of it"


def test_without_flushes_a_power_failure_takes_the_answer(template: Place, tmp_path: Path) -> None:
    """The simulation can tell: with flushes that do nothing, an acknowledged write is lost."""
    job = JOBS_BY_NAME["insert"]
    places = copies(template, tmp_path / "copies")
    swept = Sweep.measured(job, next(places))
    store, graph = durable_graph(next(places))
    shadow = Shadow(store)
    lost = shadow.image(Loss.FORGETFUL)
    store.flusher.sync = lambda _path: None  # type: ignore[union-attr]  # a `DiskFlusher` here
    job.run(graph)
    assert shadow.image(Loss.FORGETFUL).files == lost.files
    place = open_image(lost, tmp_path / "image")
    assert not check_image(swept, place, "without flushes")
