"""Random schemas on random rows: apply equals a model that knows nothing of storage."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.schema import EdgeType, NodeType, Property
from omnigraph.schema.values.convert import convert_values
from omnigraph.values import PropType, Scalar
from omnigraph.write.rules.stored_checks import StoredRowsError
from support.migrations import schema_chains
from support.places import repository_of
from support.writer import append

Row = dict[str, object]

EXAMPLES = 10 if settings.default.max_examples <= 100 else 200
"""Each example makes a graph: a quick run tries a few, a long one many."""

_VALUES: Mapping[Scalar, st.SearchStrategy[object]] = {
    Scalar.STRING: st.sampled_from(["a", "b", "c"]),
    Scalar.I32: st.integers(-5, 15),
    Scalar.I64: st.integers(-5, 15),
    Scalar.F32: st.sampled_from([0.5, -1.25, 3.0]),
    Scalar.F64: st.sampled_from([0.5, 0.1, 3.0]),
    Scalar.DATE: st.dates(dt.date(1990, 1, 1), dt.date(2030, 1, 1)),
    Scalar.DATETIME: st.dates(dt.date(1990, 1, 1), dt.date(2030, 1, 1)),
    Scalar.VECTOR: st.just([0.5, 0.25]),
}


def values_of(prop_type: PropType) -> st.SearchStrategy[object]:
    if prop_type.is_list:
        found: st.SearchStrategy[object] = st.lists(_VALUES[prop_type.scalar], max_size=2)
    elif prop_type.enum_values is not None:
        found = st.sampled_from(prop_type.enum_values)
    else:
        found = _VALUES[prop_type.scalar]
    return st.none() | found if prop_type.nullable else found


def types_of(graph: Graph) -> list[NodeType | EdgeType]:
    catalog = graph.catalog()
    return [*catalog.node_types.values(), *catalog.edge_types.values()]


def draw_rows(data: st.DataObject, declared: NodeType | EdgeType) -> list[Row]:
    rows: list[Row] = []
    for number in range(data.draw(st.integers(0, 4), label=declared.table_key)):
        row: Row = {"id": f"r{number}"}
        if isinstance(declared, EdgeType):
            row |= {"src": f"r{number % 2}", "dst": "r0"}
        for name, prop in declared.properties.items():
            row[name] = data.draw(values_of(prop.prop_type))
        rows.append(row)
    return rows


def stored_rows(graph: Graph) -> dict[int | None, list[Row]]:
    """Everything in the graph, by type number; properties by number too."""
    snapshot = graph.snapshot()
    found: dict[int | None, list[Row]] = {}
    for declared in types_of(graph):
        rows = snapshot.open(declared.table_key).scan().read_all().sort_by("id").to_pylist()
        assert snapshot.entries[declared.table_key].row_count == len(rows)
        found[declared.type_id] = [_numbered(row, declared) for row in rows]
    return found


def _numbered(row: Row, declared: NodeType | EdgeType) -> Row:
    return {
        str(declared.properties[name].property_id) if name in declared.properties else name: value
        for name, value in row.items()
    }


def model(
    before: dict[int | None, list[Row]], types: list[NodeType | EdgeType]
) -> dict[int | None, list[Row]]:
    """Project, fill and widen the old rows."""
    return {
        declared.type_id: [_desired(row, declared) for row in before.get(declared.type_id, [])]
        for declared in types
    }


def _desired(row: Row, declared: NodeType | EdgeType) -> Row:
    system = {name: row[name] for name in ("id", "src", "dst") if name in row}
    found = {str(p.property_id): _value(row, p) for p in declared.properties.values()}
    return system | found


def _value(row: Row, prop: Property) -> object:
    number = str(prop.property_id)
    if number not in row:
        if prop.prop_type.nullable:
            return None
        return convert_values([prop.default], prop.prop_type, prop.name).column[0].as_py()
    return row[number]


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(texts=schema_chains(2), data=st.data())
def test_applying_a_plan_on_random_rows_equals_the_model(
    texts: list[str], data: st.DataObject
) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        graph = Graph.init(root / "graph", texts[0], durability="process", auto_optimize=False)
        planned = graph.plan_schema(texts[1])
        assume(planned.plan.supported and planned.plan.steps)
        rows = {
            declared.table_key: pa.Table.from_pylist(
                draw_rows(data, declared), schema=declared.arrow_schema
            )
            for declared in types_of(graph)
        }
        append(repository_of(graph), {key: table for key, table in rows.items() if table.num_rows})
        before = stored_rows(graph)
        old = graph.snapshot()
        try:
            result = graph.apply_schema(texts[1])
        except StoredRowsError:
            assert stored_rows(graph) == before
            assert any(step.tier == "validated" for step in planned.plan.steps)
            return
        assert result.applied
        assert stored_rows(graph) == model(before, types_of(graph))
        assert graph.apply_schema(texts[1]).plan.steps == ()
        for key, table in rows.items():
            assert old.open(key).count() == table.num_rows
    finally:
        shutil.rmtree(root)
