"""Which vectors count as fresh."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from omnigraph.schema.vector_key import VectorKey
from omnigraph.search.embedding import table as embeddings_table
from omnigraph.search.embedding.table import LOCATION, EmbeddingsTable, text_hash, text_hashes
from omnigraph.store import Store, connect

NOTE = VectorKey("Note", "vec", ("3",), ("7",))


def names(*values: str) -> pa.Array:
    return pa.array(values, pa.utf8())


@pytest.fixture(params=["probed", "scanned"])
def table(
    store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> EmbeddingsTable:
    if request.param == "scanned":
        monkeypatch.setattr(embeddings_table, "_PROBED_IDS_MAX", 0)
    return EmbeddingsTable(store.datasets)


def record(table: EmbeddingsTable, ids: pa.Array, texts: list[str], model: str = "m") -> bool:
    return table.record(NOTE, ids=ids, hashes=text_hashes(pa.array(texts)), model=model)


def fresh(table: EmbeddingsTable, ids: pa.Array, texts: list[str], model: str = "m") -> list[bool]:
    hashes = text_hashes(pa.array(texts, pa.utf8()))
    return table.fresh(NOTE, ids=ids, hashes=hashes, model=model).tolist()


def test_nothing_is_fresh_before_anything_was_embedded(table: EmbeddingsTable) -> None:
    assert fresh(table, names("a", "b"), ["x", "y"]) == [False, False]
    assert table.known(NOTE).num_rows == 0


def test_a_vector_is_fresh_for_its_text_and_model_only(table: EmbeddingsTable) -> None:
    assert record(table, names("a", "b"), ["x", "y"])
    assert fresh(table, names("b", "a", "c"), ["y", "x", "x"]) == [True, True, False]
    assert fresh(table, names("a"), ["other"]) == [False]
    assert fresh(table, names("a"), ["x"], model="n") == [False]


def test_a_changed_text_makes_the_old_record_go(table: EmbeddingsTable) -> None:
    record(table, names("a", "b"), ["x", "y"])
    record(table, names("a"), ["z"])
    assert fresh(table, names("a", "b"), ["z", "y"]) == [True, True]
    assert fresh(table, names("a"), ["x"]) == [False]
    assert table.known(NOTE).num_rows == 2


def test_the_same_id_in_another_type_or_property_is_another_vector(table: EmbeddingsTable) -> None:
    record(table, names("a"), ["x"])
    table.record(
        VectorKey("City", "vec"), ids=names("a"), hashes=text_hashes(pa.array(["q"])), model="m"
    )
    table.record(
        VectorKey("Note", "other"), ids=names("a"), hashes=text_hashes(pa.array(["r"])), model="m"
    )
    assert fresh(table, names("a"), ["x"]) == [True]
    assert table.known(VectorKey("City", "vec"))["text_hash"].to_pylist() == [text_hash("q")]


def test_records_can_be_forgotten(table: EmbeddingsTable) -> None:
    record(table, names("a", "b", "c"), ["x", "y", "z"])
    assert table.forget(NOTE, names("b"))
    assert table.known(NOTE)["id"].to_pylist() == ["a", "c"]
    assert table.forget(NOTE)
    assert table.forget(NOTE)
    assert table.known(NOTE).num_rows == 0


def test_a_text_that_is_null_is_never_fresh(table: EmbeddingsTable) -> None:
    record(table, names("a"), ["x"])
    hashes = text_hashes(pa.array([None], pa.utf8()))
    found = table.fresh(NOTE, ids=names("a"), hashes=hashes.cast(pa.utf8()), model="m")
    assert found.tolist() == [False]


def test_a_restart_remembers(store: Store, table: EmbeddingsTable) -> None:
    record(table, names("a"), ["x"])
    again = EmbeddingsTable(connect(str(store.settings.root), durability="process").datasets)
    assert fresh(again, names("a"), ["x"]) == [True]


def test_two_writers_that_meet_both_record(store: Store) -> None:
    first = EmbeddingsTable(store.datasets)
    second = EmbeddingsTable(connect(str(store.settings.root), durability="process").datasets)
    staged_by_other = []
    real = store.datasets.commit_staged

    def commit(staged: object, **options: object) -> object:
        if not staged_by_other:
            staged_by_other.append(record(second, names("b"), ["y"]))
        return real(staged, **options)  # type: ignore[arg-type] # passes everything on

    store.datasets.commit_staged = commit  # type: ignore[method-assign,assignment] # meets the other
    assert record(first, names("a"), ["x"])
    assert staged_by_other == [True]
    assert fresh(second, names("a", "b"), ["x", "y"]) == [True, True]


def test_a_failure_is_logged_and_harmless(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.objects.put(LOCATION, b"a file where the dataset should be")
    with caplog.at_level(logging.WARNING):
        assert not record(EmbeddingsTable(store.datasets), names("a"), ["x"])
    assert "Note.vec" in caplog.text


def test_records_are_found_under_any_name_and_under_the_numbers_of_other_branches(
    table: EmbeddingsTable,
) -> None:
    old = VectorKey("Note", "vec")
    for key, ids, text in [
        (old, names("a", "b"), "old"),
        (VectorKey("Draft", "vec", ("8",), ("9",)), names("b", "c"), "other"),
    ]:
        hashes = text_hashes(pa.array([text] * len(ids)))
        assert table.record(key, ids=ids, hashes=hashes, model="m")
    record(table, names("b"), ["new"])
    renamed = VectorKey("Memo", "line", ("3", "8"), ("7", "9"))
    known = {row["id"]: row["text_hash"] for row in table.known(renamed).to_pylist()}
    assert known == {"b": text_hash("new"), "c": text_hash("other")}
    assert sorted(table.known(NOTE)["id"].to_pylist()) == ["a", "b"]
    assert table.known(VectorKey("Note", "vec", ("5",), ("6",)))["id"].to_pylist() == ["a"]
    assert table.forget(renamed)
    assert table.known(NOTE)["id"].to_pylist() == ["a"]
