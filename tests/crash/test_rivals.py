"""Two processes write the same branch; one of them is killed and started again, over and over.

No update is lost, no write happens twice, and the branch is one chain of commits. Somebody else
pins versions and cleans up meanwhile, and a handle that was idle all the time goes on in the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from crash.checks import check_opening_changes_nothing, check_sound
from crash.nursery import ANSWER_MAX_S, Child, Nursery
from crash.rivals import SCHEMA, counter_value, insert
from omnigraph.manifest import OpenMode, ReadTarget
from omnigraph.store.lance import packing
from support.places import Place

FOREVER_S = 3_600
ORPHAN_AGE_S = 20
"""Longer than any write of a process that is not stopped takes, and short enough to remove much."""


@dataclass
class Told:
    """What writers have said about their attempts."""

    inserts: set[str] = field(default_factory=set)
    increments: int = 0
    unknown: set[str] = field(default_factory=set)
    unknown_increments: int = 0
    refused: set[str] = field(default_factory=set)
    failures: list[object] = field(default_factory=list)

    def add(self, messages: list[dict[str, object]]) -> None:
        begun: dict[str, bool] = {}
        for message in messages:
            if "begin" in message:
                begun[str(message["begin"])] = bool(message["increment"])
            elif "done" in message:
                text = str(message["done"])
                if begun.pop(text):
                    self.increments += 1
                else:
                    self.inserts.add(text)
            elif "refused" in message:
                begun.pop(str(message["refused"]))
                self.refused.add(str(message["refused"]))
            elif "failed" in message:
                self.failures.append(message)
        for text, is_increment in begun.items():
            if is_increment:
                self.unknown_increments += 1
            else:
                self.unknown.add(text)


class Listener(threading.Thread):
    """Hears a child out while it works, so that it never waits for a full socket."""

    def __init__(self, child: Child) -> None:
        super().__init__(daemon=True)
        self.messages: list[dict[str, object]] = []
        self._child = child
        self._has_begun = threading.Event()

    def run(self) -> None:
        for message in self._child.rest():
            self.messages.append(message)
            if "begin" in message:
                self._has_begun.set()

    def wait_for_first_write(self) -> None:
        assert self._has_begun.wait(ANSWER_MAX_S)


def run_rivals(
    place: Place,
    nursery: Nursery,
    *,
    seconds: float,
    kills_min: int,
    before: tuple[dict[str, object], ...] = (),
    merges: bool = False,
) -> None:
    """Let two processes race; `before` is what they are told before they open the graph."""
    chance = random.Random(kills_min)
    with place.init(SCHEMA) as graph:
        graph.mutate('query q() { insert Counter { name: "all", value: 0 } }')
    opening = {
        "do": "open",
        "uri": place.uri,
        "options": dict(place.options),
        "auto_optimize": True,
    }
    told = Told()
    end = time.monotonic() + seconds

    def let_race(child: Child, name: str) -> Listener:
        work = {"do": "race", "name": name, "seconds": FOREVER_S, "merges": merges}
        child.send(*before, opening, work)
        listener = Listener(child)
        listener.start()
        return listener

    def kill(child: Child, listener: Listener) -> None:
        child.kill()
        listener.join()
        told.add(listener.messages)

    kills = 0
    pinned: dict[str, Counter[str]] = {}
    idle = place.open()
    with nursery.child() as steady:
        patient = let_race(steady, "steady")
        while time.monotonic() < end or kills < kills_min:
            with nursery.child() as mortal:
                listener = let_race(mortal, f"mortal{kills}")
                listener.wait_for_first_write()
                time.sleep(chance.uniform(0.0, 2.0))
                kill(mortal, listener)
                kills += 1
            clean_up(place, f"kill{kills}", orphan_age_s=ORPHAN_AGE_S)
            found = rows_of_tags(place)
            assert {tag: found[tag] for tag in pinned} == pinned, "an old version differs"
            pinned = found
        kill(steady, patient)
    clean_up(place, "end", orphan_age_s=0)
    insert(idle, "idle")
    told.inserts.add("idle")
    # No thread of it may write while the files are compared.
    idle.close()
    found = rows_of_tags(place)
    assert {tag: found[tag] for tag in pinned} == pinned, "an old version differs"
    check_told(place, told)
    assert told.inserts
    assert told.increments


def rows_of_tags(place: Place) -> dict[str, Counter[str]]:
    """Read everything that a tag pins, in a process that has read nothing before."""
    graph = place.open(mode=OpenMode.READ_ONLY)
    found = {}
    for tag in graph.tag_list():
        rows = graph.snapshot_of(ReadTarget.tag(tag.name)).open("node:Log").scan().read_all()
        found[tag.name] = Counter(rows["text"].to_pylist())
    return found


def clean_up(place: Place, tag: str, *, orphan_age_s: int) -> None:
    """Pin the head and remove what is old, as a process of its own would."""
    with place.open() as other:
        other.tag_create(tag)
        result = other.cleanup(keep_versions=1, orphan_age_s=orphan_age_s, confirm=True)
    assert [each.error for each in result.datasets if each.error] == []


def check_told(place: Place, told: Told) -> None:
    assert told.failures == []
    graph = place.open()
    rows = Counter(graph.snapshot().open("node:Log").scan().read_all()["text"].to_pylist())
    assert max(rows.values()) == 1, "a write happened twice"
    found = set(rows)
    assert told.inserts <= found, "an acknowledged write is lost"
    assert found <= told.inserts | told.unknown, "a refused write is there"
    value = counter_value(graph)
    assert told.increments <= value <= told.increments + told.unknown_increments
    check_sound(graph)
    audited = [record.operation_id for record in graph.recovery_list()]
    assert len(set(audited)) == len(audited)
    check_opening_changes_nothing(place)


def test_a_process_that_is_killed_does_not_disturb_another(
    local_place: Place, nursery: Nursery
) -> None:
    run_rivals(local_place, nursery, seconds=0, kills_min=2)


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_does_not_disturb_another(
    local_place: Place, nursery: Nursery
) -> None:
    run_rivals(local_place, nursery, seconds=60, kills_min=10)


@pytest.mark.slow
def test_a_process_that_is_killed_on_s3_does_not_disturb_another(
    s3_place: Place, nursery: Nursery
) -> None:
    """The lease of whoever died has to run out, which takes ten seconds each time."""
    run_rivals(s3_place, nursery, seconds=60, kills_min=3)


@pytest.fixture
def early_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process make packs as early as its children do."""
    monkeypatch.setattr(packing, "LOOSE_MIN", 6)
    monkeypatch.setattr(packing, "PACKED_MIN", 4)


@pytest.mark.usefixtures("early_packs")
def test_old_versions_stay_while_packs_merges_and_cleanups_meet(
    local_place: Place, nursery: Nursery
) -> None:
    before = ({"do": "pack_early"},)
    run_rivals(local_place, nursery, seconds=0, kills_min=2, before=before, merges=True)


@pytest.mark.slow
@pytest.mark.usefixtures("early_packs")
def test_old_versions_stay_while_packs_merges_and_cleanups_meet_again_and_again(
    local_place: Place, nursery: Nursery
) -> None:
    before = ({"do": "pack_early"},)
    run_rivals(local_place, nursery, seconds=60, kills_min=10, before=before, merges=True)
    assert [info for info in local_place.store().objects.list() if info.path.endswith(".pack")]
