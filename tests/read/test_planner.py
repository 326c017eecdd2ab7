"""Where a plan starts, and which access path an expansion takes."""

from __future__ import annotations

import pytest

from omnigraph.query import compile_text
from omnigraph.query.bindings import no_bindings
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.query.plan.print_plan import print_plan
from omnigraph.read.access.path_chooser import (
    INDEXED_MAX_FRONTIER,
    INDEXED_MAX_HOPS,
    PROBE_COST,
    TRAVERSAL_MODE,
    ExpandFacts,
    TraversalSettingError,
    TraversalSettings,
    choose_path,
)
from omnigraph.read.planner import Estimates, arrange
from omnigraph.schema import compile_schema

CATALOG = compile_schema(
    """\
node P { key: String @key  i: I32? }
node Q { name: String @key }
edge Knows: P -> P { w: I32? }
edge At: P -> Q
""",
    domain="01J" + "0" * 23,
).catalog
COUNTS = {"node:P": 1000, "node:Q": 1000, "edge:Knows": 5000, "edge:At": 1000}


def arranged(body: str, tail: str = "return { $a.key }") -> list[str]:
    [plan] = compile_text(f"query q() {{ match {{ {body} }} {tail} }}", CATALOG)
    assert isinstance(plan, ReadPlan)
    found = arrange(plan, Estimates(COUNTS.__getitem__, no_bindings(0)))
    lines = print_plan(found).splitlines()
    return lines[1 : lines.index("Return")]


def test_a_part_starts_at_its_most_selective_variable() -> None:
    assert arranged('$a: P  $a knows $b  $b at $q  $q.name = "x"') == [
        'NodeScan q: Q where q.name = "x"',
        "Expand q <-[At]- b: P",
        "Expand b <-[Knows]- a: P [key]",
    ]


def test_a_part_that_starts_well_stays() -> None:
    assert arranged('$a: P {key: "x"}  $a knows $b') == [
        'NodeScan a: P [key] where a.key = "x"',
        "Expand a -[Knows]-> b: P",
    ]


def test_a_turned_hop_remembers_at_which_end_the_loop_may_be() -> None:
    assert arranged('$a: P  $a knows{2,3} $b  $b.key = "x"') == [
        'NodeScan b: P where b.key = "x"',
        "Expand b <-[Knows]- a: P [key] {2,3} reversed",
    ]


def test_filters_over_two_variables_and_cycles_follow_their_variables() -> None:
    body = '$a: P  $a $w:knows $b  $b knows $a  $a.i < $b.i  $w.w > 1  $b.key = "x"'
    assert arranged(body) == [
        'NodeScan b: P [i] where b.key = "x"',
        "Expand b <-[w: Knows [w]]- a: P [i, key]",
        "Filter a.i < b.i",
        "Filter w.w > I32(1)",
        "Expand b -[Knows]-> a@1: P",
        "Filter a.id = a@1.id",
    ]


def test_blocks_start_at_their_most_selective_variable_too() -> None:
    body = '$a: P  {block} {{ $b: P  $b at $q  $q.name = "x"  $b.i = $a.i }}'
    inside = ['NodeScan q: Q where q.name = "x"', "Expand q <-[At]- b: P [i]", "Filter b.i = a.i"]
    for block in ("not", "optional"):
        found = [line.strip() for line in arranged(body.format(block=block))]
        assert found[-3:] == inside


def facts(**changes: int | bool) -> ExpandFacts:
    base = {"hops": 1, "frontier": 1, "edges": 1000, "nodes": 100, "is_warm": False}
    return ExpandFacts(**{**base, **changes})  # type: ignore[arg-type] # mixed values


@pytest.mark.parametrize(
    ("found", "uncovered", "path"),
    [
        (facts(), 0, "indexed"),
        (facts(hops=7), 0, "topology"),
        (facts(frontier=1025), 0, "topology"),
        (facts(frontier=149), 0, "indexed"),
        (facts(frontier=150), 0, "topology"),
        (facts(), 1000, "scan"),
        (facts(), 501, "scan"),
        (facts(), 500, "indexed"),
        (facts(hops=2), 1000, "topology"),
        (facts(hops=2), 700, "scan"),
        (facts(hops=2), 740, "topology"),
        (facts(is_warm=True), 0, "topology"),
        (facts(edges=0), 0, "topology"),
        (facts(frontier=14, is_extendable=True), 0, "indexed"),
        (facts(frontier=15, is_extendable=True), 0, "topology"),
        (facts(is_extendable=True), 1000, "topology"),
        (facts(spent=1489), 0, "indexed"),
        (facts(spent=1490), 0, "topology"),
        (facts(spent=489), 1000, "scan"),
        (facts(spent=490), 1000, "topology"),
    ],
)
def test_the_cheaper_path_is_taken(found: ExpandFacts, uncovered: int, path: str) -> None:
    assert choose_path(TraversalSettings(), found, lambda: uncovered).path == path


def test_asking_the_dataset_costs_what_is_looked_up_and_scanned_and_a_fixed_part() -> None:
    assert facts(frontier=3).probe_cost(0) == 3 * 10 + PROBE_COST
    assert facts(hops=2).probe_cost(0) == 2 * 10 + PROBE_COST
    assert facts(hops=2).probe_cost(300) == 2 * 10 + 2 * 300 + PROBE_COST
    assert choose_path(TraversalSettings(), facts(), lambda: 1000).cost == 10 + 1000 + PROBE_COST


def test_coverage_is_not_looked_at_when_it_cannot_matter() -> None:
    def unexpected() -> int:
        raise AssertionError("coverage was read")

    assert choose_path(TraversalSettings(), facts(hops=7), unexpected).path == "topology"
    forced = TraversalSettings(forced="indexed")
    assert choose_path(forced, facts(hops=7), unexpected).path == "indexed"


def test_settings_come_from_the_environment() -> None:
    settings = TraversalSettings.from_environment(
        {TRAVERSAL_MODE: "indexed", INDEXED_MAX_HOPS: "2", INDEXED_MAX_FRONTIER: ""}
    )
    assert settings == TraversalSettings(forced="indexed", hops_max=2)
    with pytest.raises(TraversalSettingError, match="a whole number"):
        TraversalSettings.from_environment({INDEXED_MAX_HOPS: "-1"})
