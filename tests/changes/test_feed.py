"""The change feed against the history that made it: pages, cursors, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.changes.commit_changes import PageLimitError, ParentlessCommitError
from omnigraph.changes.diff import ChangeGapError
from omnigraph.changes.feed import FeedRequest, FeedStartError
from omnigraph.changes.selection import Selection
from omnigraph.changes.tokens import CursorRejectedError, decode, encode
from omnigraph.graph import Graph, ReadTarget

SCHEMA = """
node Doc { slug: String @key  note: String?  at: Vector(2)?  body: Blob? }
node Tag { name: String @key }
edge Cites: Doc -> Doc { weight: F64? }
"""

State = dict[tuple[str, str], dict[str, Any]]


def doc(slug: str, note: str | None = None) -> dict[str, Any]:
    return {"type": "Doc", "data": {"slug": slug, "note": note}}


def cites(edge_id: str, source: str, target: str) -> dict[str, Any]:
    return {"edge": "Cites", "from": source, "to": target, "data": {"id": edge_id}}


def load(graph: Graph, *records: dict[str, Any], branch: str = "main") -> None:
    lines = "\n".join(json.dumps(record) for record in records)
    graph.load(lines.encode(), mode="merge", branch=branch, on_duplicate="last")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    root = str(tmp_path / "g.omni")
    return Graph.init(root, SCHEMA, durability="process", auto_optimize=False)


def apply_all(state: State, blocks: list[dict[str, Any]]) -> None:
    """Do what the changes say, and check that each fits the state it is applied to."""
    for block in blocks:
        for change in block["changes"]:
            key = (change["type"]["name"], change["id"])
            assert state.get(key) == change.get("before")
            if change["op"] == "delete":
                del state[key]
            else:
                state[key] = change["after"]


def drained(graph: Graph, limit: int, start: str, branch: str = "main") -> list[dict[str, Any]]:
    """Follow pages and cursors to the end, joining blocks that pages have cut."""
    blocks: list[dict[str, Any]] = []
    request = FeedRequest(start=start, limit=limit, commits_max=3)
    while True:
        page = graph.poll_changes(request, branch=branch).to_json()
        for block in page["blocks"]:  # type: ignore[attr-defined]  # JSON
            if blocks and blocks[-1]["cause"] == block["cause"]:
                blocks[-1]["changes"] += block["changes"]
            else:
                blocks.append(block)
        token = page.get("next_page_token")
        assert ("cursor" in page) == (token is None)
        if token is not None:
            request = FeedRequest(page_token=str(token), limit=limit, commits_max=3)
            continue
        request = FeedRequest(cursor=str(page["cursor"]), limit=limit, commits_max=3)
        if page["caught_up"]:
            return blocks


names = st.sampled_from(["a", "b", "c", "d"])
steps = st.one_of(
    st.tuples(st.just("doc"), names, st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("cites"), names, names),
    st.tuples(st.just("delete"), names, st.none()),
    st.tuples(st.just("optimize"), st.none(), st.none()),
    st.tuples(st.just("both"), names, names),
)


def run(graph: Graph, step: tuple[str, Any, Any]) -> None:
    what, first, second = step
    if what == "doc":
        load(graph, doc(first, second))
    elif what == "delete":
        graph.mutate(f'query d() {{ delete Doc where slug = "{first}" }}')
    elif what == "optimize":
        graph.optimize()
    else:
        ends = [doc(first, "cited"), doc(second, "cited")]
        load(graph, *ends, cites(f"{first}-{second}", first, second))


def check_feed(root: Path, work: list[tuple[str, Any, Any]], limit: int) -> None:
    graph = Graph.init(str(root / "g.omni"), SCHEMA, durability="process", auto_optimize=False)
    for step in work:
        run(graph, step)
    blocks = drained(graph, limit, "beginning")
    chain = [commit.graph_commit_id for commit in graph.list_commits()][::-1][1:]
    assert [block["cause"]["graph_commit_id"] for block in blocks] == chain
    state: State = {}
    apply_all(state, blocks)
    docs = {key for key in state if key[0] == "Doc"}
    rows = graph.query("query q() { match { $d: Doc } return { $d.slug } }").to_pylist()
    assert docs == {("Doc", row["d.slug"]) for row in rows}
    whole = [
        change
        for commit in chain
        for change in graph.commit_changes(commit).to_json()["changes"]  # type: ignore[attr-defined]  # JSON
    ]
    assert whole == [change for block in blocks for change in block["changes"]]


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(st.lists(steps, min_size=1, max_size=7), st.integers(1, 5))
def test_pages_and_cursors_tell_the_whole_history_once(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any, Any]], limit: int
) -> None:
    check_feed(tmp_path_factory.mktemp("feed"), work, limit)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), max_examples=300)
@given(st.lists(steps, min_size=1, max_size=16), st.integers(1, 9))
def test_pages_and_cursors_tell_a_long_history_once(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, Any, Any]], limit: int
) -> None:
    check_feed(tmp_path_factory.mktemp("feed"), work, limit)


def test_a_commit_is_returned_with_both_images(graph: Graph) -> None:
    load(graph, doc("a"), doc("b"), cites("e1", "a", "b"))
    load(graph, doc("a", "new"), cites("e1", "b", "a"))
    page = graph.commit_changes(graph.head_commit_id_for_branch()).to_json()
    node, edge = page["changes"]  # type: ignore[misc]  # JSON
    assert (node["kind"], node["id"], node["op"]) == ("node", "a", "update")
    assert node["before"]["properties"] == {"slug": "a", "note": None, "at": None, "body": None}
    assert node["after"]["properties"]["note"] == "new"
    assert edge["before"]["endpoints"] == {"from": "a", "to": "b"}
    assert edge["after"]["endpoints"] == {"from": "b", "to": "a"}
    assert page["cause"]["authored_branch"] == "main"  # type: ignore[index]  # JSON


def test_the_first_commit_has_nothing_to_tell(graph: Graph) -> None:
    with pytest.raises(ParentlessCommitError):
        graph.commit_changes(graph.head_commit_id_for_branch())


def test_now_skips_what_happened_and_the_cursor_goes_on(graph: Graph) -> None:
    load(graph, doc("a"))
    page = graph.poll_changes(FeedRequest())
    assert (page.blocks, page.caught_up) == ((), True)
    load(graph, doc("b"))
    page = graph.poll_changes(FeedRequest(cursor=page.cursor))
    assert [change["id"] for block in page.blocks for change in block.changes] == ["b"]
    assert page.caught_up is True


def test_a_filter_selects_and_empty_blocks_still_move_the_cursor(graph: Graph) -> None:
    load(graph, doc("a"))
    load(graph, {"type": "Tag", "data": {"name": "t"}})
    only = Selection.of(types=["Tag"])
    page = graph.poll_changes(FeedRequest(selection=only, start="beginning"))
    assert [[change["id"] for change in block.changes] for block in page.blocks] == [[], ["t"]]


def test_a_cursor_of_another_life_of_a_branch_is_rejected(graph: Graph) -> None:
    load(graph, doc("a"))
    graph.branch_create("draft")
    cursor = graph.poll_changes(FeedRequest(), branch="draft").cursor
    graph.branch_delete("draft")
    graph.branch_create("draft")
    with pytest.raises(CursorRejectedError, match="another incarnation"):
        graph.poll_changes(FeedRequest(cursor=cursor), branch="draft")
    with pytest.raises(CursorRejectedError, match="another branch"):
        graph.poll_changes(FeedRequest(cursor=cursor))
    other = Selection.of(ops=["delete"])
    cursor = graph.poll_changes(FeedRequest()).cursor
    with pytest.raises(CursorRejectedError, match="another filter"):
        graph.poll_changes(FeedRequest(selection=other, cursor=cursor))


@pytest.mark.parametrize("token", ["", "x", "é", "A" * 5_000, "eyJ9"])
def test_what_is_no_token_is_rejected(graph: Graph, token: str) -> None:
    with pytest.raises(CursorRejectedError, match="change cursor rejected: "):
        graph.poll_changes(FeedRequest(cursor=token))


@pytest.mark.parametrize(("limit", "commits"), [(0, 1), (8_193, 1), (1, 0), (1, 513)])
def test_a_page_of_nothing_or_of_too_much_is_refused(
    graph: Graph, limit: int, commits: int
) -> None:
    load(graph, doc("a"))
    with pytest.raises(PageLimitError, match="a page holds 1 to") as caught:
        graph.poll_changes(FeedRequest(start="beginning", limit=limit, commits_max=commits))
    assert bool(caught.value.details) == (max(limit, commits) > 1)
    if commits == 1:
        with pytest.raises(PageLimitError):
            graph.commit_changes(graph.head_commit_id_for_branch(), limit=limit)


def test_an_unknown_start_is_refused(graph: Graph) -> None:
    with pytest.raises(FeedStartError, match="unknown start 'yesterday'"):
        graph.poll_changes(FeedRequest(start="yesterday"))


def test_long_ids_are_found_again_on_the_next_page(graph: Graph) -> None:
    slugs = [letter * 400 for letter in "abc"]
    load(graph, *(doc(slug) for slug in slugs))
    found = drained(graph, 1, "beginning")
    assert [change["id"] for block in found for change in block["changes"]] == slugs


def test_the_difference_of_two_states_names_what_differs(graph: Graph) -> None:
    load(graph, doc("a"), doc("b"), cites("e1", "a", "b"))
    first = graph.head_commit_id_for_branch()
    load(graph, doc("a", "x"), doc("c"))
    graph.mutate('query d() { delete Doc where slug = "b" }')
    found = graph.diff_between(ReadTarget.commit(first), ReadTarget.branch("main")).to_json()
    changes = [(c["type_name"], c["id"], c["op"]) for c in found["changes"]]  # type: ignore[attr-defined]  # JSON
    assert changes == [
        ("Cites", "e1", "delete"),
        ("Doc", "c", "insert"),
        ("Doc", "a", "update"),
        ("Doc", "b", "delete"),
    ]
    assert found["stats"] == {
        "inserts": 1,
        "updates": 1,
        "deletes": 2,
        "types_affected": ["Cites", "Doc"],
    }
    nothing = graph.diff_between(ReadTarget.branch("main"), ReadTarget.branch("main"))
    assert nothing.changes == ()


def test_a_token_that_names_another_operation_of_a_row_is_rejected(graph: Graph) -> None:
    """A checksum does not say who made a token, so every field of it is checked."""
    load(graph, *(doc(f"d{number}") for number in range(3)))
    page = graph.poll_changes(FeedRequest(start="beginning", limit=2)).to_json()
    fields = decode(str(page["next_page_token"]), "feed-page")
    assert fields["position"]["op"] == 0
    forged = encode("feed-page", fields | {"position": fields["position"] | {"op": 1}})
    with pytest.raises(CursorRejectedError, match="not in this commit"):
        graph.poll_changes(FeedRequest(page_token=forged, limit=2))


def test_a_version_that_goes_while_the_reader_has_it_open_is_a_gap(graph: Graph) -> None:
    """What is open is not looked for on the disk; its rows are missed when they are read."""
    load(graph, doc("a", "one"))
    first = graph.commits.head_id()
    update = 'query q($note: String) { update Doc set { note: $note } where slug = "a" }'
    for note in ("two", "three"):
        graph.mutate(update, params={"note": note})
    with Graph.open(graph.uri) as reader:
        for commit in reader.commits.list():
            reader.snapshot_of(commit).open("node:Doc")
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        with pytest.raises(ChangeGapError):
            reader.poll_changes(FeedRequest(start=f"after:{first}"))
