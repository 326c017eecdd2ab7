"""Damage of any file: refused with an error, healed, or named by a scrub. Never silent.

A graph with files of every kind is prepared once. Each damage is laid over it at its own address;
the graph is scrubbed, opened for writing, and read in every way. A scrub names nothing but what is
damaged; it has named whatever is read differently without an error, or takes the process down.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from omnigraph.graph import ScrubReport, ScrubRequest, scrub_graph
from omnigraph.store.digests import CHECKSUMS
from support.damages import (
    DIED,
    KINDS,
    READ,
    Damaged,
    DamageKind,
    Reader,
    by_kind,
    damaged,
    damages,
    kind_of,
    prepare,
)
from support.places import Place
from support.sweeps import Archive

DOCS = 11_000
"""Enough rows for a vector index, and edges for a topology."""
QUICK, SLOW = 40, 300
_NEVER_NAMED = {"checksums", "hint", "lease", "schema file"}
"""Made again, never read, or named as a whole."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    place = Place(str(tmp_path_factory.mktemp("damage") / "graph"))
    prepare(place, DOCS)
    return archived(place)


def archived(place: Place) -> Archive:
    objects = place.store().objects
    return Archive(place, {info.path: objects.get(info.path).data for info in objects.list()})


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


def scrubbed(place: Place) -> ScrubReport:
    return scrub_graph(place.uri, ScrubRequest(), storage_options=place.options)


class Judge:
    """Holds every damage against what is allowed."""

    def __init__(self, archive: Archive, reader: Reader) -> None:
        self.archive = archive
        self.reader = reader
        how, self.content = reader.read(archive.restored())
        assert how == READ
        self.outcomes: Counter[str] = Counter()

    def judge(self, damage: Damaged) -> None:
        place = self.archive.restored(damage.files)
        about = f"{damage.kind} of {sorted(damage.paths)}"
        named = {found.path for found in scrubbed(place).damaged}
        own = {CHECKSUMS} if all(kind_of(p) == "checksums" for p in damage.paths) else set()
        assert named <= damage.paths | own, f"{about}: named {sorted(named - damage.paths)}"
        how, content = self.reader.read(place)
        if how == READ and content != self.content:
            how = "different"
        if how in {DIED, "different"}:
            different = [key for key in self.content if self.content[key] != content.get(key)]
            assert named == damage.paths, f"{about}: {how}, {different}"
        self.outcomes[how] += 1
        self.outcomes["named"] += named == damage.paths


def test_the_graph_has_files_of_every_kind_with_checksums(archive: Archive) -> None:
    kinds = by_kind(archive.files)
    assert kinds.keys() == KINDS
    report = scrubbed(archive.restored())
    assert report.damaged == ()
    assert report.without_checksum == ()
    assert report.compared == report.files


def test_no_damage_is_silent(archive: Archive, reader: Reader) -> None:
    judge = Judge(archive, reader)
    for damage in damages(archive.files, QUICK, seed=1):
        judge.judge(damage)
    assert judge.outcomes["named"] >= QUICK // 3, "the scrub finds what it is for"


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_no_damage_is_silent_in_many(archive: Archive, reader: Reader) -> None:
    judge = Judge(archive, reader)
    for damage in damages(archive.files, SLOW, seed=2):
        judge.judge(damage)
    assert judge.outcomes["named"] >= SLOW // 3


def test_no_damage_is_silent_on_an_object_store(s3_place: Place, reader: Reader) -> None:
    prepare(s3_place, 200)
    judge = Judge(archived(s3_place), reader)
    for damage in damages(judge.archive.files, QUICK // 6, seed=3):
        judge.judge(damage)
    assert judge.outcomes["named"]


@pytest.mark.parametrize("kind", sorted(KINDS - _NEVER_NAMED))
def test_a_flipped_bit_of_each_kind_is_named(archive: Archive, kind: str) -> None:
    chance = random.Random(3)
    paths = by_kind(archive.files)[kind]
    for path in chance.sample(paths, len(paths)):
        damage = damaged(archive.files, DamageKind.FLIP, [path], chance)
        assert damage is not None
        report = scrubbed(archive.restored(damage.files))
        if report.damaged:
            break  # What only old versions of a derived table need is needed by nobody.
    (found,) = report.damaged
    assert {found.path} == damage.paths
    assert found.to_json()["remedy"] == found.remedy
