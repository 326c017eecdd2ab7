"""A process dies while one of its threads commits for several: `os._exit`, at every named point.

Each member is there wholly or not at all. They are published in their order, so those that are
there are the first ones. Nothing is left half done, and what is missing can be written again.
"""

from __future__ import annotations

import pytest

from crash.checks import check_opening_changes_nothing, check_sound
from crash.nursery import Nursery
from omnigraph.failpoints import OF_A_WRITE
from support.places import Place
from support.sweep_jobs import GROUP, GROUP_NAMES, members_in, prepare

POINTS = [
    point
    for point in OF_A_WRITE
    if point not in ("write.post_stage", "write.turn_taken", "recovery.sidecar_confirm")
]
"""Those that a group passes once for each member."""
PUBLISHED = ("graph_publish.after_commit_append", "write.sidecar_deleted")
MOVED = ("write.post_phase_b_pre_manifest_commit", "graph_publish.before_commit_append")
QUICK = {
    ("recovery.sidecar_write", 1),
    ("write.after_first_table", 2),
    ("graph_publish.after_commit_append", 2),
}
TEXTS = [
    f'query q() {{ insert Person {{ name: "{name}" }}'
    f' insert Knows {{ from: "ann", to: "{name}" }} }}'
    for name in GROUP_NAMES
]


def published_at(point: str, hit: int) -> set[int]:
    """Return how many members are there after a death at the n-th time of a point.

    A member whose tables have moved is rolled forward, unless the one behind it has moved them too:
    that happens once the publish of the first has been sent.
    """
    if point in PUBLISHED:
        # The tables of the next one have moved in the same round.
        return {min(hit + 1, len(GROUP_NAMES))}
    if point in MOVED:
        return {hit}
    if point == "write.after_first_table":
        return {hit - 1}
    return set(range(len(GROUP_NAMES) + 1))


def check_death(place: Place, nursery: Nursery, point: str, hit: int) -> None:
    prepare(place)
    with nursery.child() as child:
        child.ask({"do": "open", "uri": place.uri, "options": dict(place.options)})
        child.ask({"do": "die_at", "point": point, "hit": hit})
        child.send({"do": "run_together", "texts": TEXTS})
        assert list(child.rest()) == [{"begin": 0}], f"{point} was not passed {hit} times"
    graph = place.open()
    found = members_in(graph)
    assert found == list(GROUP_NAMES[: len(found)])
    assert len(found) in published_at(point, hit)
    check_sound(graph)
    check_opening_changes_nothing(place)
    GROUP.run(graph)
    assert members_in(place.open()) == list(GROUP_NAMES)
    check_sound(place.open())


@pytest.mark.parametrize(("point", "hit"), sorted(QUICK))
def test_a_process_that_dies_in_a_group_leaves_each_member_whole(
    local_place: Place, nursery: Nursery, point: str, hit: int
) -> None:
    check_death(local_place, nursery, point, hit)


@pytest.mark.slow
@pytest.mark.parametrize("hit", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_anywhere_in_a_group_leaves_each_member_whole(
    local_place: Place, nursery: Nursery, point: str, hit: int
) -> None:
    check_death(local_place, nursery, point, hit)
