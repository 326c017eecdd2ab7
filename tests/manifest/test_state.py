from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.manifest.rows import Entry, Head, ManifestRow, Tag, tombstone_row, voided_row
from omnigraph.manifest.state import CorruptManifestError, ManifestState
from support.manifests import (
    PATH,
    commit,
    entry,
    raw_state,
    registration,
    schema,
    state,
)

PERSON = "node:Person"


def winner(*rows: ManifestRow) -> Entry | None:
    return state(registration().row(), *rows).entries.get(PERSON)


# -- the fold --------------------------------------------------------------------------------------


def test_the_highest_seq_wins_not_the_highest_dataset_version() -> None:
    old, new = entry(2, table_version=40), entry(3, table_version=7, table_branch="dev.X")
    assert winner(old.row(), new.row()) == new
    assert winner(new.row(), old.row()) == new


def test_an_entry_that_comes_back_to_an_older_lineage_wins_by_its_seq() -> None:
    rows = [
        entry(2, table_version=5),
        entry(3, table_version=6, table_branch="dev.X", owner="dev.X"),
        entry(4, table_version=5),
        entry(5, table_version=7, table_branch="dev.X", owner="dev.X"),
    ]
    assert winner(*(row.row() for row in rows)) == rows[-1]
    assert winner(*(row.row() for row in rows[:3])) == rows[2]


def test_a_tombstone_ends_what_came_before_it_and_nothing_that_comes_with_it_or_later() -> None:
    tombstone = tombstone_row(PERSON, 5)
    assert winner(entry(4).row(), tombstone) is None
    assert winner(entry(4).row(), tombstone, entry(5).row()) == entry(5)
    assert winner(entry(4).row(), tombstone, entry(6).row()) == entry(6)
    assert winner(entry(4).row(), tombstone, entry(6).row(), tombstone_row(PERSON, 9)) is None


def test_tables_are_folded_each_for_itself_and_listed_in_order() -> None:
    keys = ["node:B", "edge:A", "node:A"]
    rows = [row for key in keys for row in (registration(key).row(), entry(3, table_key=key).row())]
    entries = state(*rows, tombstone_row("node:B", 8)).entries
    assert list(entries) == ["edge:A", "node:A"]


@given(
    st.lists(
        st.tuples(st.sampled_from("ABC"), st.integers(1, 60), st.booleans(), st.integers(1, 9)),
        unique_by=lambda row: (row[0], row[1], row[2]),
        max_size=30,
    )
)
def test_the_fold_agrees_with_a_walk_through_history(
    history: list[tuple[str, int, bool, int]],
) -> None:
    rows: list[ManifestRow] = [registration(f"node:{name}").row() for name in "ABC"]
    expected: dict[str, int] = {}
    for name, seq, is_tombstone, version in history:
        key = f"node:{name}"
        made = entry(seq, table_key=key, table_version=version).row()
        rows.append(tombstone_row(key, seq) if is_tombstone else made)
    # A tombstone comes before what is published in its place by the same commit.
    for name, _, is_tombstone, version in sorted(history, key=lambda r: (r[1], not r[2])):
        if is_tombstone:
            expected.pop(f"node:{name}", None)
        else:
            expected[f"node:{name}"] = version
    found = {key: entry.table_version for key, entry in state(*rows).entries.items()}
    assert found == expected


# -- commits ---------------------------------------------------------------------------------------


def history(*versions: int) -> ManifestState:
    """Commits whose records appeared in these manifest versions."""
    commits = [commit(f"C{version}", created_at=version * 10) for version in versions]
    created = {c.graph_commit_id: v for c, v in zip(commits, versions, strict=True)}
    return state(*(c.row() for c in commits), created=created)


def names(commits: list[object]) -> list[str]:
    return [getattr(c, "graph_commit_id") for c in commits]  # noqa: B009 - any commit


def test_commits_come_newest_first_by_where_their_row_appeared() -> None:
    found = history(3, 1, 2)
    assert names(list(found.commits())) == ["C3", "C2", "C1"]
    assert names(list(found.commits(limit=2))) == ["C3", "C2"]
    assert names(list(found.commits(before=3))) == ["C2", "C1"]
    assert names(list(found.commits(limit=1, before=2))) == ["C1"]
    assert found.commits(limit=0) == []
    assert found.commits()[0].manifest_version == 3


def test_a_moment_between_two_commits_belongs_to_the_earlier_one() -> None:
    found = history(1, 2, 3)
    assert found.last_commit_until(9) is None
    for moment, expected in ((10, "C1"), (19, "C1"), (20, "C2"), (10**9, "C3")):
        last = found.last_commit_until(moment)
        assert last is not None
        assert last.graph_commit_id == expected


def test_of_two_commits_of_one_moment_the_larger_id_counts() -> None:
    tied = [commit(name, created_at=5) for name in ("C2", "C3", "C1")]
    last = state(*(c.row() for c in tied)).last_commit_until(5)
    assert last is not None
    assert last.graph_commit_id == "C3"


def test_published_and_voided_ids_are_told_apart() -> None:
    found = state(commit("C1").row(), voided_row("C2", "O2"))
    assert found.is_published("C1")
    assert not found.is_voided("C1")
    assert found.is_voided("C2")
    assert not found.is_published("C2")
    assert found.commit("C2") is None


def test_commits_with_an_actor_are_found_without_parsing() -> None:
    acting = commit("C1", actor_id="ann").row()
    silent = ManifestRow("C2", "graph_commit", {**commit("C2").row().metadata, "message": "x"})
    odd = commit("C3").row()
    odd = ManifestRow(
        "C3", "graph_commit", {**odd.metadata, "properties": {"actor_id": "not really"}}
    )
    found = state(acting, silent, odd)
    assert found.acting_commit_ids == {"C1"}
    assert found.commit_ids == {"C1", "C2", "C3"}
    assert names(list(found.commits_with_ids({"C1", "C9"}))) == ["C1"]


# -- damage ----------------------------------------------------------------------------------------


def malformed(row: ManifestRow, **columns: object) -> ManifestState:
    rows = [Head("C0", "sha256:abc").row(), schema().row(), registration().row(), row]
    values: dict[str, list[object]] = {}
    for name, value in columns.items():
        kept: Mapping[str, list[object]] = {
            "metadata": ["{}", "{}", "{}"],
            "table_key": [None, None, PERSON],
            "table_version": [None] * 3,
            "row_count": [None] * 3,
            "location": [None, None, "nodes/p"],
        }
        values[name] = [*kept[name], value]
    return raw_state(rows, replaced=values)


@pytest.mark.parametrize(
    ("build", "read"),
    [
        (lambda: malformed(entry(3).row(), metadata="{"), lambda s: s.entries),
        (lambda: malformed(entry(3).row(), metadata="{}"), lambda s: s.entries),
        (lambda: malformed(entry(3).row(), metadata="[]"), lambda s: s.entries),
        (lambda: malformed(entry(3).row(), metadata=None), lambda s: s.entries),
        (lambda: malformed(entry(3).row(), table_version=None), lambda s: s.entries),
        (lambda: malformed(entry(3).row(), row_count=None), lambda s: s.entries),
        (lambda: malformed(entry(3).row(), table_key=None), lambda s: s.entries),
        (
            lambda: malformed(ManifestRow("node:Person$x", "table_version", {})),
            lambda s: s.entries,
        ),
        (
            lambda: malformed(ManifestRow("node:Person$tombstone$x", "table_tombstone", {})),
            lambda s: s.entries,
        ),
        (lambda: malformed(commit("C1").row(), metadata="{}"), lambda s: s.commits()),
        (lambda: malformed(commit("C1").row(), metadata="7"), lambda s: s.commit("C1")),
        (lambda: malformed(Tag("t", "C1", 1, "p").row(), metadata="{}"), lambda s: s.tags),
        (lambda: raw_state([schema().row()]), lambda s: s.head),
        (lambda: raw_state([Head("C0", "x").row()]), lambda s: s.schema),
        (lambda: raw_state([Head("C0", "x").row(), schema("y").row()]), lambda s: s.schema),
        (
            lambda: raw_state([ManifestRow("graph_head", "graph_head", {"commit_id": "C"})]),
            lambda s: s.head,
        ),
        (
            lambda: raw_state([registration().row()], replaced={"metadata": ["{}"]}),
            lambda s: s.registrations,
        ),
        (lambda: state(entry(3).row()), lambda s: s.entries),
        (lambda: state(Head("C1", "h").row()), lambda s: s.head),
        (lambda: state(entry(3).row(), entry(3, table_version=2).row()), lambda s: s.entries),
        (
            lambda: state(commit("C1").row(), voided_row("C1", "O1")),
            lambda s: s.is_published("C1"),
        ),
    ],
)
def test_damage_is_reported_with_path_and_version(
    build: Callable[[], ManifestState], read: Callable[[ManifestState], object]
) -> None:
    with pytest.raises(CorruptManifestError) as caught:
        read(build())
    assert caught.value.path == PATH
    assert caught.value.version == 9
    assert f"{PATH} is corrupt at version 9" in str(caught.value)


def test_a_repeated_object_id_is_named() -> None:
    with pytest.raises(CorruptManifestError, match="several rows have the object id C1"):
        state(commit("C1").row(), commit("C2").row(), voided_row("C1", "O1"))
