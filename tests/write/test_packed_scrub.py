"""A scrub of a graph whose old versions go into packs, or out of them, meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from omnigraph.maintenance.cleanup.remover import Remover
from omnigraph.maintenance.scrub import scrub as scrubbing
from omnigraph.maintenance.scrub.report import ScrubRequest
from omnigraph.manifest import Repository
from omnigraph.manifest.compact import pack_manifest
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.store.lance import packing
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.lance.store import LanceStore
from omnigraph.store.objects.local import LocalObjectStore
from support.places import Place, finish_maintenance, repository_of


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LOOSE_MIN", 4)
    monkeypatch.setattr(packing, "PACKED_MIN", 4)


def pack(repository: Repository, location: str) -> None:
    if location == MANIFEST:
        pack_manifest(repository, MAIN_INCARNATION)
    else:
        repository.store.datasets.pack_versions(location)


def unpack(repository: Repository, location: str) -> None:
    work = repository.store.datasets._packing  # type: ignore[attr-defined]
    work.release(location, None, None)
    work._unpackable.clear()


def grown(place: Place, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Return a graph of which no version is in a pack yet."""
    monkeypatch.setattr(packing, "LOOSE_MIN", 1_000)
    graph = place.init()
    for number in range(12):
        graph.load(b'{"type": "Person", "data": {"name": "p%d"}}\n' % number, mode="append")
    finish_maintenance(graph)
    monkeypatch.setattr(packing, "LOOSE_MIN", 4)
    repository = repository_of(graph)
    repository.checksums.record()
    return repository


def homes_of(repository: Repository) -> list[str]:
    entries = repository.reader.latest(MAIN_INCARNATION).entries.values()
    return sorted({MANIFEST, *(entry.location for entry in entries)})


MOVES = (pack, unpack)


@pytest.mark.parametrize("move", MOVES)
def test_what_moves_while_it_is_checked_is_no_damage(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, move: Any
) -> None:
    repository = grown(local_place, monkeypatch)
    homes = homes_of(repository)
    if move is unpack:
        for home in homes:
            pack(repository, home)
    repository.checksums.record()
    listed = scrubbing._Scrub._files_in

    def late(self: Any, location: str) -> Any:
        files = listed(self, location)
        if location in homes:
            move(repository, location)
        return files

    monkeypatch.setattr(scrubbing._Scrub, "_files_in", late)
    before = packs(local_place)
    report = scrubbing.scrub(repository_of(local_place.open()), ScrubRequest(share=1.0))
    assert packs(local_place) != before
    assert [str(each) for each in report.damaged] == []


MOMENTS = {
    "files were listed": (LocalObjectStore, "list"),
    "packs were compared": (scrubbing._Scrub, "_check_packs"),
    "a version was opened": (LanceOpener, "open_cold"),
    "it is known what versions need": (LanceStore, "needed_files"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_moves_at_any_moment_is_no_damage(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    repository = grown(local_place, monkeypatch)
    for call in itertools.count(1):
        if not sum(moved_at(local_place, repository, moment, call, move) for move in MOVES):
            break
    assert call > 2


def moved_at(
    place: Place, repository: Repository, moment: str, call: int, move: Callable[..., None]
) -> bool:
    """Scrub, and move all versions at the n-th time of a moment; return whether that was passed."""

    def step() -> None:
        for home in homes_of(repository):
            move(repository, home)

    before, scrubbed = packs(place), repository_of(place.open())
    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, *MOMENTS[moment], call, step)
        report = scrubbing.scrub(scrubbed, ScrubRequest(share=1.0))
    assert [str(each) for each in report.damaged] == [], (move.__name__, call)
    is_passed = packs(place) != before
    step()
    return is_passed


def at_call(
    patch: pytest.MonkeyPatch, owner: type, name: str, number: int, step: Callable[[], object]
) -> None:
    """Do something once, after a method was called for the n-th time."""
    real, calls = getattr(owner, name), itertools.count(1)

    def called(*args: Any, **options: Any) -> Any:
        found = real(*args, **options)
        if next(calls) == number:
            # A generator has read by then what it yields.
            found = list(found) if isinstance(found, Iterator) else found
            step()
        return found

    patch.setattr(owner, name, called)


def packs(place: Place) -> list[str]:
    return [info.path for info in place.store().objects.list() if info.path.endswith(".pack")]


def test_a_branch_that_is_deleted_while_it_is_checked_is_no_damage(
    local_place: Place,
) -> None:
    graph = local_place.init()
    for call in itertools.count(1):
        graph.branch_create("draft")
        graph.mutate('query q() { insert Person { name: "new" } }', branch="draft")
        finish_maintenance(graph)
        scrubbed = repository_of(local_place.open())
        with pytest.MonkeyPatch.context() as patch:
            at_call(patch, LocalObjectStore, "list", call, lambda: graph.branch_delete("draft"))
            report = scrubbing.scrub(scrubbed, ScrubRequest(share=1.0))
        assert [str(each) for each in report.damaged] == [], call
        if "draft" in graph.branch_list():
            break
    assert call > 2


def test_versions_of_a_table_that_a_cleanup_removes_meanwhile_are_no_damage(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = local_place.init()
    for number in range(4):
        graph.load(b'{"type": "Person", "data": {"name": "p%d"}}\n' % number, mode="append")
    finish_maintenance(graph)
    repository = repository_of(graph)
    repository.checksums.record()
    # What has gone is stored at the end of a cleanup; this one does not get there.
    monkeypatch.setattr(Remover, "remove_others", lambda _remover: iter(()))
    scrubbed = repository_of(local_place.open())
    head = repository.reader.latest(MAIN_INCARNATION).head.commit_id

    def removed() -> None:
        graph.maintenance.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)

    at_call(monkeypatch, scrubbing._Scrub, "_manifest", 1, removed)
    tables = [home for home in homes_of(repository) if home != MANIFEST]
    datasets = repository.store.datasets
    before = {home: datasets.versions(home) for home in tables}
    report = scrubbing.scrub(scrubbed, ScrubRequest(share=1.0))
    assert any(len(datasets.versions(home)) < len(before[home]) for home in tables)
    assert [str(each) for each in report.damaged] == []
    assert graph.snapshot().commit_id == head
