"""A scrub of a graph whose old versions go into packs, or out of them, meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.maintenance import scrub as scrubbing
from omnigraph.maintenance.scrub_report import ScrubRequest
from omnigraph.manifest import Repository
from omnigraph.manifest.compact import pack_manifest
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.store.lance import packing
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


@pytest.mark.parametrize("move", [pack, unpack])
def test_what_moves_while_it_is_checked_is_no_damage(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, move: Any
) -> None:
    monkeypatch.setattr(packing, "LOOSE_MIN", 1_000)
    graph = local_place.init()
    for number in range(12):
        graph.load(b'{"type": "Person", "data": {"name": "p%d"}}\n' % number, mode="append")
    finish_maintenance(graph)
    monkeypatch.setattr(packing, "LOOSE_MIN", 4)
    repository = repository_of(graph)
    entries = repository.reader.latest(MAIN_INCARNATION).entries.values()
    homes = {MANIFEST, *(entry.location for entry in entries)}
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


def packs(place: Place) -> list[str]:
    return [info.path for info in place.store().objects.list() if info.path.endswith(".pack")]
