"""What planners learn about indexes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.search.coverage import IndexFacts, TableIndexes
from omnigraph.store import Store
from omnigraph.store.records import IndexKind, IndexSpec
from support.edge_world import EDGES, PEOPLE, World
from support.places import PERSON, Place
from support.writer import append, people


@pytest.fixture
def world(store: Store) -> World:
    made = World.create(store)
    made.add_nodes([f"p{number}" for number in range(20)])
    made.add_edges([(f"p{number}", f"p{number + 1}") for number in range(19)])
    return made


def index(world: World, location: str, *specs: IndexSpec) -> None:
    world._commit(world.store.datasets.stage_create_index(world.at[location], specs))


def facts(world: World, location: str = EDGES) -> TableIndexes:
    return TableIndexes.of(world.open(location))


def test_a_column_without_an_index_is_degraded(world: World) -> None:
    assert facts(world).btree_gap("src") == "no BTREE index on 'src'"


def test_a_column_that_is_not_there_is_degraded(world: World) -> None:
    assert facts(world).btree_gap("nope") == "column 'nope' not in schema"


def test_a_whole_index_is_indexed(world: World) -> None:
    index(world, EDGES, IndexSpec("src", IndexKind.BTREE))
    assert facts(world).btree_gap("src") is None
    assert facts(world).btree_gap("dst") is not None


def test_new_fragments_are_not_covered(world: World) -> None:
    index(world, EDGES, IndexSpec("src", IndexKind.BTREE))
    world.add_edges([("p1", "p2"), ("p2", "p3")])
    world.add_edges([("p1", "p2")])
    world.delete(EDGES, ["e19"])
    found = facts(world)
    assert found.btree_gap("src") == "2 fragment(s) not covered by the index on 'src'"
    src = found.on("src", IndexKind.BTREE)
    assert src is not None
    assert (len(src.missing_fragments), src.missing_rows) == (2, 2)
    assert (found.rows, found.fragments) == (21, 3)


def test_deletions_do_not_spoil_an_index(world: World) -> None:
    index(world, EDGES, IndexSpec("src", IndexKind.BTREE))
    world.delete(EDGES, ["e3"])
    assert facts(world).btree_gap("src") is None


def test_kinds_of_index_on_one_column_are_distinguished(world: World) -> None:
    index(
        world,
        PEOPLE,
        IndexSpec("id", IndexKind.INVERTED, name="id_text"),
        IndexSpec("id", IndexKind.BTREE),
    )
    found = facts(world, PEOPLE)
    text, btree = found.text("id"), found.on("id", IndexKind.BTREE)
    assert text is not None
    assert btree is not None
    assert (text.name, btree.name) == ("id_text", "id_idx")
    assert found.vector("id") is None


def test_facts_are_read_once_per_published_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Place(str(tmp_path / "graph")).init_repository()
    graph = Place(str(tmp_path / "graph")).open()
    reads: list[object] = []
    real = TableIndexes.of

    def counted(handle: object) -> TableIndexes:
        reads.append(handle)
        return real(handle)  # type: ignore[arg-type] # passes everything on

    monkeypatch.setattr(TableIndexes, "of", counted)
    known = IndexFacts()
    before = graph.snapshot()
    assert known.of(before, PERSON) is known.of(before, PERSON)
    assert len(reads) == 1
    append(repository, {PERSON: people("ann")})
    graph.refresh()
    assert known.of(graph.snapshot(), PERSON).rows == 1
    assert known.of(before, PERSON).rows == 0
    assert len(reads) == 2


def test_an_empty_table_has_no_uncovered_rows(store: Store) -> None:
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
    store.datasets.commit_staged(store.datasets.stage_create("nodes/none", schema))
    found = TableIndexes.of(store.datasets.open("nodes/none"))
    assert (found.rows, found.fragments, found.indexes) == (0, 0, ())
    assert found.btree_gap("id") == "no BTREE index on 'id'"
