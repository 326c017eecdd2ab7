from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.names import (
    SCHEMA_APPLY_LOCK,
    BranchName,
    IllegalNameError,
    TableKey,
    actor_slug,
    check_tag_name,
    is_own_branch,
)
from omnigraph.texts import fnv1a64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "cbf29ce484222325"),
        ("a", "af63dc4c8601ec8c"),
        ("foobar", "85944171f73967e8"),
        ("Person", "40d76f1f51639ec0"),
    ],
)
def test_fnv1a64_gives_the_published_values(text: str, expected: str) -> None:
    assert fnv1a64(text) == expected


@given(st.text())
def test_fnv1a64_is_always_sixteen_digits(text: str) -> None:
    assert len(fnv1a64(text)) == 16
    assert int(fnv1a64(text), 16) < 2**64


@pytest.mark.parametrize(
    "name", ["dev", "team/etl", "a/b/c", "v1.2", "_x", "__run__7", "2024-01-01", "Main", "a.b-c_d"]
)
def test_ordinary_names_are_taken_as_they_are(name: str) -> None:
    assert str(BranchName.parse(name)) == name
    assert check_tag_name(name) == name


def test_names_are_trimmed() -> None:
    assert BranchName.parse("  dev\n") == BranchName("dev")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "/",
        "a/",
        "/a",
        "a//b",
        ".a",
        "-a",
        "a.",
        "a..b",
        "a.lock",
        "a b",
        "ä",
        "a\\b",
        "a:b",
    ],
)
def test_names_that_no_file_can_have_are_refused(name: str) -> None:
    for parse in (BranchName.parse, check_tag_name):
        with pytest.raises(IllegalNameError) as caught:
            parse(name)
        assert caught.value.name == name.strip()


@pytest.mark.parametrize("name", [SCHEMA_APPLY_LOCK, f"{SCHEMA_APPLY_LOCK}/x"])
def test_the_lock_branch_and_everything_below_it_is_reserved(name: str) -> None:
    with pytest.raises(IllegalNameError, match="reserved for the system"):
        BranchName.parse(name)


@given(st.integers(1, 110), st.integers(1, 6))
def test_a_name_that_is_accepted_fits_into_a_file_name(parts: int, width: int) -> None:
    name = "/".join(["x" * width] * parts)
    encoded = name.replace("/", "%2F")
    if len(encoded) > 200:
        with pytest.raises(IllegalNameError, match="is longer than 200"):
            BranchName.parse(name)
    else:
        BranchName.parse(name)
        assert len(f"{encoded}.{'0' * 26}.json") <= 255


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a", "a/b", True),
        ("a/b", "a", True),
        ("a/b", "a/b/c", True),
        ("a", "ab", False),
        ("a/b", "a/c", False),
        ("a", "a", False),
        ("main", "main/x", True),
    ],
)
def test_names_nest_when_one_is_a_path_prefix_of_the_other(
    one: str, other: str, expected: bool
) -> None:
    assert BranchName(one).nests_with(BranchName(other)) is expected


def test_table_keys_are_split_the_way_they_are_made() -> None:
    assert TableKey.node("Person").parts == ("node", "Person")
    assert TableKey.of("edge", "Knows") == TableKey.edge("Knows") == "edge:Knows"
    assert TableKey("edge:Knows").is_edge
    assert TableKey("edge:Knows").type_name == "Knows"
    with pytest.raises(ValueError, match="not a table key"):
        TableKey("interface:Named").parts  # noqa: B018 - it raises


@pytest.mark.parametrize("actor_id", ["act-bot", "7", "a" * 48, "a-", "a-0123456789abc"])
def test_a_plain_actor_id_is_its_own_slug(actor_id: str) -> None:
    assert actor_slug(actor_id) == actor_id


@pytest.mark.parametrize(
    ("actor_id", "word"),
    [
        ("a" * 49, "a" * 35),
        ("Act-Bot", "actbot"),
        ("act-bot\n", "actbot"),
        ("-act", "act"),
        ("a/../b", "ab"),
        ("é", "actor"),
        ("\u212aelvin", "elvin"),
        ("act-0123456789ab", "act0123456789ab"),
    ],
)
def test_any_other_actor_id_has_a_hash_in_its_slug(actor_id: str, word: str) -> None:
    digest = hashlib.sha256(actor_id.encode()).hexdigest()
    assert actor_slug(actor_id) == f"{word}-{digest[:12]}"


@given(st.text(min_size=1), st.text(min_size=1))
def test_actors_do_not_share_a_slug_and_it_is_a_part_of_a_branch_name(one: str, other: str) -> None:
    slug = actor_slug(one)
    assert (slug == actor_slug(other)) is (one == other)
    assert BranchName.parse(f"agent/{slug}/{'t' * 48}").text.startswith("agent/")
    # An actor that takes the slug of another one as its id gets a slug of its own.
    assert slug == one or actor_slug(slug) != slug


@pytest.mark.parametrize(
    ("branch", "is_own"),
    [
        ("agent/act-bot/fix", True),
        ("agent/act-bot/fix/2", True),
        ("agent/act-bot", False),
        ("agent/act-bot/", False),
        ("agent/act-bot//fix", False),
        ("agent/act-bot/../main", False),
        ("agent/act-bot/fix ", False),
        ("agent/act-bot/fix\n", False),
        ("agent/act-bot/fix\x00", False),
        ("agent/act-bots/fix", False),
        ("agent/other/fix", False),
        ("Agent/act-bot/fix", False),
        ("main", False),
        ("", False),
    ],
)
def test_a_branch_is_own_below_the_tree_of_its_actor(branch: str, is_own: bool) -> None:
    assert is_own_branch(branch, "act-bot") is is_own
