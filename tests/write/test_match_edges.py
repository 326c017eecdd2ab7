"""Edges without an id in a merge: which stored edge each of them stands for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import ConflictError, OmnigraphError
from omnigraph.failpoints import arm, disarm
from omnigraph.graph import Graph
from omnigraph.write.load import match_edges
from omnigraph.write.load.options import LoadOptionsError
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from support.entities import entities
from support.places import Place, repository_of
from support.writer import append_unordered

SCHEMA = """
node Crew { tag: String @key }
node Note { text: String }
edge Plain: Crew -> Crew
edge Rich: Crew -> Crew {
    n: I32?  x: F64?  t: String? @default("-")  l: [I32]?  v: Vector(2)?  b: Blob?  d: DateTime?
}
edge Lone: Crew -> Crew @card(0..1) { n: I32? }
edge Ends: Crew -> Crew { n: I32?  m: I32?  @unique(src, dst) }
edge Groups: Crew -> Crew {
    a: I32?  b: I32?  n: I32?  code: String? @unique
    @unique(src, dst, a)  @unique(src, dst, b)
}
edge About: Note -> Crew
"""
CREW = [{"type": "Crew", "data": {"tag": tag}} for tag in "abc"]


def edge(name: str, ends: str, **data: object) -> dict[str, object]:
    return {"edge": name, "from": ends[0], "to": ends[1], "data": data}


def lines(*records: dict[str, object]) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


Start = Callable[..., Graph]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = Place(str(tmp_path / "graph")).init(SCHEMA)
    made.load(lines(*CREW), mode="append")
    return made


def ids(graph: Graph, name: str) -> list[str]:
    table = graph.snapshot().open(f"edge:{name}").scan().read_all()
    return sorted(table["id"].to_pylist())


RICH = edge(
    "Rich",
    "ab",
    n=1,
    x=-0.0,
    t="é",
    l=[1, 3, 2],
    v=[1.5, -0.0],
    b="base64:aGk=",
    d="2025-03-01T06:00:00Z",
)


@pytest.mark.parametrize(
    "records",
    [
        [edge("Plain", "ab"), edge("Plain", "ba")],
        [edge("Plain", "ab"), edge("Plain", "ab"), edge("Plain", "ab")],
        [RICH, edge("Rich", "ab"), edge("Rich", "ab", t=None), edge("Rich", "ab", l=[])],
        [edge("Lone", "ab", n=1), edge("Lone", "ba")],
        [edge("Ends", "ab", n=1), edge("Ends", "ba", m=2)],
        [
            edge("Groups", "ab", a=1, b=2),
            edge("Groups", "ab", a=2),
            edge("Groups", "ab", b=3),
            edge("Groups", "ab", n=4),
            edge("Groups", "ab", n=4),
        ],
        [edge("Plain", "ab", id="x"), edge("Plain", "ab"), edge("Plain", "bc")],
    ],
)
def test_a_second_merge_of_the_same_input_changes_nothing(
    graph: Graph, records: list[dict[str, object]]
) -> None:
    first = graph.load(lines(*records), mode="merge")
    assert first.inserted == len(records)
    before = entities(graph)
    again = graph.load(lines(*records), mode="merge")
    assert again.commit is None
    assert (again.inserted, again.updated, again.unchanged) == (0, 0, len(records))
    assert entities(graph) == before


def test_a_dry_run_counts_what_a_merge_would_do(graph: Graph) -> None:
    graph.load(lines(edge("Plain", "ab"), edge("Ends", "ab", n=1)), mode="merge")
    records = lines(
        edge("Plain", "ab"), edge("Plain", "ac"), edge("Ends", "ab", n=2), edge("Ends", "ac")
    )
    tried = graph.load(records, mode="merge", dry_run=True)
    done = graph.load(records, mode="merge")
    for result in (tried, done):
        assert (result.inserted, result.updated, result.unchanged) == (2, 1, 1)


def test_each_stored_edge_stands_for_one_record(graph: Graph) -> None:
    graph.load(lines(edge("Plain", "ab")), mode="merge")
    result = graph.load(lines(*[edge("Plain", "ab")] * 3), mode="merge")
    assert (result.inserted, result.unchanged) == (2, 1)
    assert len(ids(graph, "Plain")) == 3


@pytest.mark.parametrize(
    "changed", [{"x": 0.0}, {"l": [1, 2, 3]}, {"v": [1.5, 0.0]}, {"b": "base64:aGU="}, {"n": 2}]
)
def test_an_edge_that_differs_in_any_value_is_another_edge(
    graph: Graph, changed: dict[str, object]
) -> None:
    graph.load(lines(RICH), mode="merge")
    data = RICH["data"]
    assert isinstance(data, dict)
    other = {**RICH, "data": data | changed}
    assert graph.load(lines(other), mode="merge").inserted == 1


def test_a_missing_property_is_its_default_when_edges_are_compared(graph: Graph) -> None:
    graph.load(lines(edge("Rich", "ab", t="-")), mode="merge")
    assert graph.load(lines(edge("Rich", "ab")), mode="merge").unchanged == 1
    assert graph.load(lines(edge("Rich", "ab", t=None)), mode="merge").inserted == 1


def test_an_edge_of_a_unique_group_keeps_its_id_and_is_updated(graph: Graph) -> None:
    graph.load(lines(edge("Ends", "ab", n=1)), mode="merge")
    before = ids(graph, "Ends")
    result = graph.load(lines(edge("Ends", "ab", n=2), edge("Ends", "ac", n=3)), mode="merge")
    assert (result.inserted, result.updated) == (1, 1)
    assert set(before) < set(ids(graph, "Ends"))
    assert "Ends a->b n=2" in entities(graph)


def test_the_first_group_without_a_null_decides(graph: Graph) -> None:
    graph.load(lines(edge("Groups", "ab", a=1, b=1, n=1)), mode="merge")
    before = ids(graph, "Groups")
    graph.load(lines(edge("Groups", "ab", a=1, b=2, n=2)), mode="merge")
    assert (ids(graph, "Groups"), entities(graph)[-1]) == (before, "Groups a->b a=1 b=2 n=2")
    graph.load(lines(edge("Groups", "ab", b=2, n=3)), mode="merge")
    assert ids(graph, "Groups") == before


def test_a_record_with_an_id_takes_its_edge_before_the_others(graph: Graph) -> None:
    graph.load(lines(edge("Plain", "ab", id="x"), edge("Ends", "ab", id="y", n=1)), mode="merge")
    moved = lines(
        edge("Plain", "bc", id="x"),
        edge("Plain", "ab"),
        edge("Ends", "bc", id="y"),
        edge("Ends", "ab"),
    )
    result = graph.load(moved, mode="merge")
    assert (result.inserted, result.updated) == (2, 2)
    assert graph.load(moved, mode="merge").unchanged == 4


def test_a_match_may_still_break_another_rule(graph: Graph) -> None:
    graph.load(
        lines(edge("Groups", "ab", a=1, code="p"), edge("Groups", "ab", a=2, code="q")),
        mode="merge",
    )
    held = graph.snapshot().open("edge:Groups").scan().read_all().to_pylist()
    by_code = {row["code"]: row["id"] for row in held}
    with pytest.raises(ValidationError) as raised:
        graph.load(lines(edge("Groups", "ab", a=1, code="q")), mode="merge")
    assert f"held by '{by_code['q']}' and '{by_code['p']}'" in str(raised.value)


def test_edges_may_be_added_instead(graph: Graph) -> None:
    for _ in range(2):
        graph.load(lines(edge("Plain", "ab")), mode="merge", edges="add")
    graph.load(lines(edge("Plain", "ab")), mode="merge", reader="compatible")
    assert len(ids(graph, "Plain")) == 3
    result = graph.load(
        lines(edge("Plain", "ab")), mode="merge", reader="compatible", edges="match"
    )
    assert result.unchanged == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_edges_is_for_merges(graph: Graph, mode: str) -> None:
    with pytest.raises(LoadOptionsError, match="`edges` is for mode `merge`"):
        graph.load(b"", mode=mode, edges="add")


def test_tables_match_too(graph: Graph) -> None:
    table = pa.table({"src": ["a", "b"], "dst": ["b", "a"], "n": pa.array([1, None], pa.int32())})
    graph.load_tables(edges={"Rich": table}, mode="merge")
    assert graph.load_tables(edges={"Rich": table}, mode="merge").unchanged == 2
    assert graph.load_tables(edges={"Rich": table}, mode="merge", edge_identity="add").inserted == 2


def test_a_merge_warns_of_nodes_that_it_would_add_again(graph: Graph) -> None:
    notes: list[dict[str, object]] = [
        {"type": "Note", "data": {"text": "a", "id": "n"}},
        {"type": "Note", "data": {"text": "b"}},
        {"type": "Note", "data": {"text": "b"}},
    ]
    result = graph.load(lines(*CREW, *notes), mode="merge")
    text = "2 records have neither a key nor an id: a second load adds them again"
    assert result.node_counts["Note"].warnings == (text,)
    assert result.warnings == (f"Note: {text}",)
    assert graph.load(lines(*notes[1:]), mode="append").warnings == ()


def test_rejected_rows_take_no_edge(graph: Graph, tmp_path: Path) -> None:
    graph.load(lines(edge("Lone", "ab", n=1)), mode="merge")
    result = graph.load(
        lines(edge("Lone", "ab", n=1), edge("Lone", "ac", n=2), edge("Lone", "bc")),
        mode="merge",
        on_error="quarantine",
        quarantine=tmp_path / "bad",
    )
    assert (result.inserted, result.unchanged, result.rejected) == (1, 1, 1)


def test_many_rows_match_by_a_scan_and_in_parts(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_edges, "PROBES_MAX", 0)
    records = [
        edge(name, f"{one}{other}", **({} if name == "Plain" else {"n": n}))
        for n, one in enumerate("abc")
        for other in "abc"
        for name in ("Plain", "Rich", "Ends")
    ]
    graph.load(lines(*records), mode="merge", edges="match")
    again = graph.load(lines(*records, edge("Rich", "ab", n=9)), mode="merge")
    assert (again.inserted, again.updated, again.unchanged) == (1, 0, len(records))
    # Few rows for many stored edges: only those between the same nodes are read whole.
    monkeypatch.setattr(match_edges, "_WHOLE_SCAN_SHARE", 0)
    some = graph.load(lines(records[4], edge("Rich", "ca", n=9)), mode="merge")
    assert (some.inserted, some.unchanged) == (1, 1)


# -- keyed edges ----------------------------------------------------------------------------------

KEYED = """
node Crew { tag: String @key }
node Day { n: I32  part: String  @key(n, part) }
edge Keeps: Crew -> Day { as: String  hours: F32?  @key(src, dst, as) }
"""


@pytest.fixture
def keyed(tmp_path: Path) -> Graph:
    made = Place(str(tmp_path / "graph")).init(KEYED)
    days = [{"type": "Day", "data": {"n": 1, "part": "dog"}}]
    made.load(lines(*CREW, *days), mode="append")
    return made


def keeps(tag: str, role: str, **data: object) -> dict[str, object]:
    return {"edge": "Keeps", "from": tag, "to": '["1","dog"]', "data": {"as": role} | data}


def test_the_id_of_a_keyed_edge_spells_its_ends_and_members(keyed: Graph) -> None:
    keyed.load(lines(keeps("a", "mate")), mode="append")
    assert ids(keyed, "Keeps") == [r'["a","[\"1\",\"dog\"]","mate"]']


def test_keyed_edges_are_replaced_by_a_merge_and_refused_by_an_append(keyed: Graph) -> None:
    keyed.load(lines(keeps("a", "mate", hours=1)), mode="merge")
    result = keyed.load(lines(keeps("a", "mate", hours=2), keeps("a", "cook")), mode="merge")
    assert (result.inserted, result.updated) == (1, 1)
    assert keyed.load(lines(keeps("a", "mate", hours=2)), mode="merge", edges="add").unchanged == 1
    with pytest.raises(KeyConflictError, match="already"):
        keyed.load(lines(keeps("a", "mate")), mode="append")


def test_a_given_id_of_a_keyed_edge_must_spell_the_key(keyed: Graph) -> None:
    with pytest.raises(ValidationError, match="does not match its canonical @key id"):
        keyed.load(lines(keeps("a", "mate", id="a")), mode="merge")
    canonical = r'["a","[\"1\",\"dog\"]","mate"]'
    assert keyed.load(lines(keeps("a", "mate", id=canonical)), mode="merge").inserted == 1


def test_one_key_twice_in_an_input_is_an_error(keyed: Graph) -> None:
    with pytest.raises(ValidationError, match=r"@unique violation on Keeps\.\(src, dst, as\)"):
        keyed.load(lines(keeps("a", "mate"), keeps("a", "mate", hours=1)), mode="merge")


def test_ends_in_another_spelling_make_the_same_key(tmp_path: Path) -> None:
    schema = "node N { k: I32 @key }\nedge E: N -> N { @key(src, dst) }"
    graph = Place(str(tmp_path / "graph")).init(schema)
    node: dict[str, object] = {"type": "N", "data": {"k": 7, "id": "007"}}
    graph.load(
        lines(node, {"edge": "E", "from": "007", "to": "7"}), mode="merge", reader="compatible"
    )
    assert ids(graph, "E") == ['["7","7"]']


def test_branches_with_the_same_keyed_edge_merge(keyed: Graph) -> None:
    keyed.branch_create("other")
    for branch in ("main", "other"):
        keyed.load(lines(keeps("a", "mate", hours=1)), mode="merge", branch=branch)
    keyed.load(lines(keeps("b", "mate")), mode="merge", branch="other")
    keyed.branch_merge("other", "main")
    assert len(ids(keyed, "Keeps")) == 2


def test_a_key_comes_and_goes_only_while_there_are_no_edges(tmp_path: Path) -> None:
    free, keyed, longer = (
        f"node N {{ k: String @key }}\nedge E: N -> N {{ a: I32  {rule} }}"
        for rule in ("", "@key(src, dst)", "@key(src, dst, a)")
    )
    graph = Place(str(tmp_path / "graph")).init(free)
    for text in (keyed, free, longer, keyed):
        assert graph.schema.apply(text).applied
    node: dict[str, object] = {"type": "N", "data": {"k": "a"}}
    graph.load(lines(node, edge("E", "aa", a=1)), mode="append")
    assert ids(graph, "E") == ['["a","a"]']
    for text in (free, longer):
        with pytest.raises(OmnigraphError, match=r"removing constraint @key\(dst, src\)"):
            graph.schema.apply(text)


def test_a_key_is_not_added_while_another_writer_adds_the_first_edge(tmp_path: Path) -> None:
    free, keyed = (
        f"node N {{ k: String @key }}\nedge E: N -> N {{ a: I32  {rule} }}"
        for rule in ("", "@key(src, dst)")
    )
    graph = Place(str(tmp_path / "graph")).init(free)
    graph.load(lines({"type": "N", "data": {"k": "a"}}), mode="append")
    repository = repository_of(graph)
    row = pa.table(
        {"id": ["x"], "src": ["a"], "dst": ["a"], "a": pa.array([1], pa.int32())},
        schema=graph.catalog().edge_types["E"].arrow_schema,
    )

    def overtake() -> None:
        # As if this process had slept for long and lost its lock.
        disarm()
        append_unordered(repository, graph.snapshot().incarnation, {"edge:E": row})

    arm("graph_publish.before_commit_append", overtake)
    try:
        with pytest.raises(ConflictError):
            graph.schema.apply(keyed)
    finally:
        disarm()
    assert graph.catalog().edge_types["E"].key == ()
