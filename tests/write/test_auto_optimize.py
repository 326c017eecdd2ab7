"""Small writes tidy up after themselves."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.graph import Graph, OpenMode
from omnigraph.maintenance import background as auto_optimize
from omnigraph.maintenance.background import (
    READ_AT_OPEN_MAX,
    SMALL_MAX,
    UNCOVERED_MAX,
    URGENT_COMMITS,
    crowded_sizes,
    tail_to_compact,
)
from omnigraph.maintenance.optimize import Maintenance
from omnigraph.manifest.layout import COMMITS, MANIFEST
from omnigraph.store.errors import StorageUnavailableError
from omnigraph.store.records import FragmentInfo
from support.places import PERSON, Place, finish_maintenance, ids, repository_of


def fragment(number: int, rows: int, deleted: int = 0) -> FragmentInfo:
    return FragmentInfo(number, rows + deleted, deleted, 1, str(number))


def test_few_small_fragments_are_left_alone() -> None:
    assert tail_to_compact([fragment(n, 1) for n in range(SMALL_MAX)]) is None


def test_only_fragments_up_to_the_crowded_size_are_rewritten() -> None:
    large = [fragment(n, 500_000) for n in range(20)]
    small = [fragment(100 + n, 1) for n in range(SMALL_MAX + 1)]
    options = tail_to_compact([*large, *small])
    assert options is not None
    assert options.target_rows <= 1_000


def test_many_deletions_are_a_reason_too() -> None:
    options = tail_to_compact([fragment(n, 2_000_000, 1) for n in range(SMALL_MAX + 1)])
    assert options is not None


@given(st.lists(st.integers(1, 2_000_000), max_size=400))
def test_what_is_left_alone_is_bounded(sizes: list[int]) -> None:
    fragments = [fragment(number, rows) for number, rows in enumerate(sizes)]
    small = sum(rows < 1_000_000 for rows in sizes)
    assert (tail_to_compact(fragments) is None) is (small <= SMALL_MAX)


def test_what_is_read_at_open_has_few_fragments_of_each_larger_size() -> None:
    small = [fragment(n, 3) for n in range(SMALL_MAX)]
    larger = [fragment(100 + n, 200) for n in range(READ_AT_OPEN_MAX)]
    assert crowded_sizes([*larger, *small], is_closing=False) is None
    options = crowded_sizes([*larger, fragment(200, 200), *small], is_closing=False)
    assert options is not None
    assert options.target_rows == 1_024
    options = crowded_sizes([*larger, *small], is_closing=True)
    assert options is not None
    assert options.target_rows == 32
    assert crowded_sizes(larger, is_closing=True) is None


def test_fragments_stay_few_and_rows_are_rewritten_seldom() -> None:
    """Commits of three rows each, and a run after every `URGENT_COMMITS` of them."""
    sizes: list[int] = []
    commits, rewritten, most = 20_000, 0, 0
    for number in range(commits):
        sizes.append(3)
        most = max(most, len(sizes))
        options = None
        if number % URGENT_COMMITS == 0:
            found = [fragment(n, rows) for n, rows in enumerate(sizes)]
            options = crowded_sizes(found, is_closing=False)
        if options is not None:
            taken = [rows for rows in sizes if rows < options.target_rows]
            rewritten += sum(taken)
            sizes = [rows for rows in sizes if rows >= options.target_rows] + [sum(taken)]
    assert most <= SMALL_MAX + URGENT_COMMITS + 3 * READ_AT_OPEN_MAX
    assert sum(1 for rows in sizes if rows > 3) <= 3 * READ_AT_OPEN_MAX
    assert rewritten <= 4 * 3 * commits


def write(graph: Graph, number: int) -> None:
    graph.load(b'{"type":"Person","data":{"name":"p%d"}}\n' % number, mode="append")


def counts(graph: Graph) -> tuple[int, int, int]:
    datasets = repository_of(graph).store.datasets
    return (
        len(graph.snapshot().open(PERSON).fragments()),
        len(datasets.open(MANIFEST).fragments()),
        len(datasets.open(COMMITS).fragments()),
    )


def test_a_long_lived_handle_tidies_up_in_the_background(place: Place) -> None:
    graph = place.init()
    writes = SMALL_MAX + 2 * URGENT_COMMITS
    for number in range(writes):
        write(graph, number)
    finish_maintenance(graph)
    table, manifest, commits = counts(graph)
    assert table <= SMALL_MAX
    assert commits <= SMALL_MAX
    assert manifest <= SMALL_MAX + 2 * URGENT_COMMITS
    assert len(ids(graph.snapshot())) == writes
    assert any(commit.operation == "optimize" for commit in graph.list_commits())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let few fragments be too many."""
    monkeypatch.setattr(auto_optimize, "SMALL_MAX", 6)
    monkeypatch.setattr(auto_optimize, "URGENT_COMMITS", 4)
    return 6


def recorded(graph: Graph) -> list[str]:
    table = repository_of(graph).store.datasets.open(COMMITS).scan().read_all()
    return sorted(table["graph_commit_id"].to_pylist())


def published(graph: Graph) -> list[str]:
    return sorted(commit.graph_commit_id for commit in graph.list_commits())


def test_commits_get_into_the_derived_tables_soon_and_many_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last of the commits ends the pause, however long they take.
    monkeypatch.setattr(auto_optimize, "PAUSE_S", 300.0)
    monkeypatch.setattr(auto_optimize, "URGENT_COMMITS", 5)
    graph = place.init()
    before = len(repository_of(graph).store.datasets.open(COMMITS).fragments())
    for number in range(5):
        write(graph, number)
    while recorded(graph) != published(graph):
        time.sleep(0.02)
    assert len(repository_of(graph).store.datasets.open(COMMITS).fragments()) == before + 1
    write(graph, 5)
    finish_maintenance(graph)
    assert recorded(graph) == published(graph)
    write(graph, 6)
    finish_maintenance(graph)
    assert recorded(graph) == published(graph), "a handle goes on after its maintenance"


def test_without_a_worker_a_commit_is_recorded_by_its_writer(place: Place) -> None:
    place.init().close()
    graph = Graph.open(place.uri, durability="process", auto_optimize=False)
    write(graph, 1)
    assert recorded(graph) == published(graph)


def test_a_process_that_ends_without_closing_leaves_nothing_behind(place: Place) -> None:
    place.init().close()
    script = (
        "from omnigraph import Graph\n"
        f"graph = Graph.open({place.uri!r}, durability='process')\n"
        'graph.load(b\'{"type":"Person","data":{"name":"x"}}\', mode="append")\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    graph = Graph.open(place.uri, mode=OpenMode.READ_ONLY)
    assert len(published(graph)) == 2
    assert recorded(graph) == published(graph)


def test_a_process_that_ends_without_closing_records_files_of_an_object_store(
    s3_place: Place,
) -> None:
    s3_place.init().close()
    script = (
        "from omnigraph import Graph\n"
        f"graph = Graph.open({s3_place.uri!r}, storage_options={dict(s3_place.options)!r})\n"
        'graph.load(b\'{"type":"Person","data":{"name":"x"}}\', mode="append")\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""


def test_short_lived_handles_tidy_up_when_they_are_closed(place: Place, impatient: int) -> None:
    place.init().close()
    for number in range(impatient + 1):
        with place.open() as graph:
            write(graph, number)
    later = place.open()
    assert counts(later)[0] == 1
    assert len(ids(later.snapshot())) == impatient + 1


def test_short_lived_handles_leave_little_to_open(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_optimize, "READ_AT_OPEN_MAX", 2)
    local_place.init().close()
    for number in range(8):
        with local_place.open() as graph:
            write(graph, number)
    later = local_place.open()
    _, manifest, commits = counts(later)
    assert commits <= 3
    assert manifest <= 5
    assert recorded(later) == published(later)


def test_a_closed_handle_has_nothing_under_way(
    place: Place, impatient: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that waited for its pause would outlive any look at the threads.
    monkeypatch.setattr(auto_optimize, "PAUSE_S", 300.0)
    before = set(threading.enumerate())
    graph = place.init()
    for number in range(impatient + 1):
        write(graph, number)
    finish_maintenance(graph)
    assert any(commit.operation == "optimize" for commit in graph.list_commits())
    assert recorded(graph) == published(graph), "what closing has committed is recorded by it"
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if thread.name == "auto-optimize"]


@pytest.mark.parametrize(("tail", "indexed"), [(100_000, True), (UNCOVERED_MAX, False)])
def test_what_a_large_load_left_is_not_indexed_when_a_handle_is_closed(
    place: Place, monkeypatch: pytest.MonkeyPatch, tail: int, indexed: bool
) -> None:
    monkeypatch.setattr("omnigraph.maintenance.background.TAIL_ROWS_MAX", tail)
    graph = place.init()
    for number in range(UNCOVERED_MAX + 1):
        write(graph, number)
    finish_maintenance(graph)
    assert bool(graph.snapshot().open(PERSON).indexes()) == indexed


def test_tidying_can_be_switched_off(place: Place, impatient: int) -> None:
    place.init().close()
    graph = Graph.open(place.uri, durability="process", auto_optimize=False)
    for number in range(impatient + 2):
        write(graph, number)
    finish_maintenance(graph)
    assert counts(graph)[0] == impatient + 2


def test_a_branch_tidies_up_only_what_it_owns(place: Place, impatient: int) -> None:
    graph = place.init()
    write(graph, 1_000)
    graph.branch_create("dev")
    main = graph.snapshot().entries[PERSON]
    with place.open("dev") as dev:
        for number in range(impatient + 2):
            write(dev, number)
    assert len(place.open("dev").snapshot().open(PERSON).fragments()) < impatient
    assert graph.snapshot().entries[PERSON] == main
    assert len(ids(place.open("dev").snapshot())) == impatient + 3


def test_a_failure_to_tidy_up_never_reaches_a_writer(
    place: Place, impatient: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StorageUnavailableError(path="x", reason="injected")

    monkeypatch.setattr(Maintenance, "compact_tail", broken)
    graph = place.init()
    for number in range(2 * impatient):
        write(graph, number)
    finish_maintenance(graph)
    assert len(ids(graph.snapshot())) == 2 * impatient
