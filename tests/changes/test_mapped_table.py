"""A table as another schema sees it, against a plain model of its rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.changes.mapped_table import mapped
from omnigraph.changes.table_changes import table_changes
from omnigraph.schema import NodeType, Property
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.mapping import map_type
from omnigraph.store import Store, connect
from omnigraph.store.blob_contents import BLOB_DESCRIPTION
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.errors import InvalidScanError
from omnigraph.store.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsNull,
    Negation,
    OneOf,
    StartsWith,
)
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    ColumnSource,
    IndexKind,
    IndexSpec,
    ScanRequest,
    VectorSearch,
)
from omnigraph.values import BLOB_STORAGE, PropType, Scalar

NOBODY = Aliases.of()
WIDER = {Scalar.I32: Scalar.I64, Scalar.F32: Scalar.F64, Scalar.DATE: Scalar.DATETIME}
Row = dict[str, Any]


def node(*properties: Property) -> NodeType:
    return NodeType("Item", {prop.name: prop for prop in sorted(properties, key=lambda p: p.name)})


def prop(name: str, scalar: Scalar, number: int, filled: Any = None) -> Property:
    return Property(name, PropType(scalar, nullable=True), property_id=number, filled=filled)


class Tables:
    """Stored tables, one per call."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._made = 0

    def __call__(self, stored: NodeType, rows: list[Row]) -> DatasetHandle:
        self._made += 1
        schema, datasets = stored.arrow_schema, self.store.datasets
        columns = {
            field.name: pa.array([row[field.name] for row in rows], field.type) for field in schema
        }
        table = pa.table(columns, schema=schema) if rows else None
        staged = datasets.stage_create(f"nodes/{self._made}", schema, rows=table)
        at = datasets.commit_staged(staged).at
        return datasets.open(at.location, version=at.version)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(connect(str(tmp_path_factory.mktemp("graph"))))


# -- the model -------------------------------------------------------------------------------------

VALUES: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["", "a", "ab", "b"],
    Scalar.I32: [-1, 0, 7],
    Scalar.F32: [-1.5, 0.5, 2.0],
    Scalar.DATE: [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)],
    Scalar.BOOL: [True, False],
}
FILLS: dict[Scalar, list[Any]] = VALUES | {Scalar.DATE: ["2024-02-29"]}


@dataclass(frozen=True)
class World:
    """Stored rows, two forms of their type, and what a column of the second is in the first."""

    stored: NodeType
    wanted: NodeType
    rows: list[Row]

    def value(self, row: Row, name: str) -> Any:
        if name == "id":
            return row["id"]
        mine = self.wanted.properties[name]
        for other in self.stored.properties.values():
            if other.property_id == mine.property_id:
                return row[other.name]
        filled = mine.filled
        return (
            datetime.date.fromisoformat(filled)
            if isinstance(filled, str) and "-" in filled
            else filled
        )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    scalars = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    stored = [prop(f"p{n}", scalar, n) for n, scalar in enumerate(scalars)]
    wanted = []
    for before in stored:
        fate = draw(st.sampled_from(["kept", "dropped", "renamed", "widened"]))
        after = before
        if fate == "renamed":
            after = replace(before, name=f"q{before.property_id}")
        if fate == "widened":
            kind = replace(
                before.prop_type, scalar=WIDER.get(before.prop_type.scalar, before.prop_type.scalar)
            )
            after = replace(before, prop_type=kind)
        if fate != "dropped":
            wanted.append(after)
    for number in range(draw(st.integers(0, 2))):
        scalar = draw(st.sampled_from(list(VALUES)))
        filled = draw(st.none() | st.sampled_from(FILLS[scalar]))
        name = draw(st.sampled_from([f"p{number}", f"new{number}"]))
        if name not in {each.name for each in wanted}:
            wanted.append(prop(name, scalar, 100 + number, filled))
    rows = [
        {"id": f"i{n}"}
        | {p.name: draw(st.none() | st.sampled_from(VALUES[p.prop_type.scalar])) for p in stored}
        for n in range(draw(st.integers(0, 4)))
    ]
    return World(node(*stored), node(*wanted), rows)


def filters(world: World) -> st.SearchStrategy[Filter]:
    leaves = st.sampled_from(
        [leaf for name in world.wanted.properties for leaf in leaves_of(world, name)]
        or [IsNull("id")]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(Negation),
            st.lists(inner, max_size=2).map(lambda parts: AllOf(tuple(parts))),
            st.lists(inner, max_size=2).map(lambda parts: AnyOf(tuple(parts))),
        ),
        max_leaves=4,
    )


def leaves_of(world: World, name: str) -> Iterator[Filter]:
    kind = world.wanted.properties[name].prop_type
    narrow = {wide: narrow for narrow, wide in WIDER.items()}.get(kind.scalar, kind.scalar)
    literals = [pa.scalar(value, kind.arrow_type) for value in VALUES[narrow]]
    yield IsNull(name)
    yield OneOf(name, tuple(literals[:2]))
    if kind.scalar is Scalar.STRING:
        yield StartsWith(name, "a")
        yield Contains(name, "b")
    if kind.scalar is not Scalar.BOOL:
        yield Comparison(name, "<=", literals[0])
    yield Comparison(name, "!=", literals[-1])


def holds(  # noqa: PLR0911 - one line per kind of filter
    row_filter: Filter, value: Callable[[str], Any]
) -> bool | None:
    """Decide a filter as SQL does; None is unknown."""
    match row_filter:
        case Negation(part):
            found = holds(part, value)
            return None if found is None else not found
        case AllOf(parts):
            answers = [holds(part, value) for part in parts]
            return False if False in answers else None if None in answers else True
        case AnyOf(parts):
            answers = [holds(part, value) for part in parts]
            return True if True in answers else None if None in answers else False
        case IsNull(column):
            return value(column) is None
    mine = value(row_filter.column)
    if mine is None:
        return None
    match row_filter:
        case Comparison(_, "<=", literal):
            return bool(mine <= plain(literal))
        case Comparison(_, _, literal):
            return bool(mine != plain(literal))
        case OneOf(_, literals):
            return mine in [plain(literal) for literal in literals]
        case StartsWith(_, prefix):
            return str(mine).startswith(prefix)
        case Contains(_, part):
            return part in str(mine)
    raise AssertionError(row_filter)


def plain(value: Any) -> Any:
    found = value.as_py() if isinstance(value, pa.Scalar) else value
    return found.date() if isinstance(found, datetime.datetime) else found


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_mapped_table_reads_as_its_model(tables: Tables, data: st.DataObject) -> None:
    world = data.draw(worlds())
    handle = tables(world.stored, world.rows)
    view = mapped(handle, map_type(world.stored, world.wanted, NOBODY))
    names = world.wanted.arrow_schema.names
    wanted = [tuple(world.value(row, name) for name in names) for row in world.rows]

    def read(found: pa.Table) -> list[tuple[Any, ...]]:
        assert found.schema.names[: len(names)] == names
        assert [found.schema.field(n).type for n in names] == [
            world.wanted.arrow_schema.field(n).type for n in names
        ]
        return [tuple(plain(row[name]) for name in names) for row in found.to_pylist()]

    assert read(view.scan().read_all()) == wanted
    rows = view.scan(ScanRequest(columns=(), with_row_id=True, with_row_address=True)).read_all()
    assert read(view.take(rows[ROW_ID].combine_chunks())) == wanted
    assert read(view.take_addresses(rows[ROW_ADDRESS].combine_chunks())) == wanted
    for name in names:
        only = view.scan(ScanRequest(columns=(name,))).read_all()
        assert [plain(v) for v in only[name].to_pylist()] == [
            row[names.index(name)] for row in wanted
        ]
    row_filter = data.draw(filters(world))
    kept = [
        row
        for row in world.rows
        if holds(row_filter, lambda name, row=row: world.value(row, name))  # type: ignore[misc]
    ]
    found = view.scan(ScanRequest(columns=("id",), row_filter=row_filter)).read_all()
    assert found["id"].to_pylist() == [row["id"] for row in kept]
    assert view.count(row_filter) == len(kept)


# -- single facts ----------------------------------------------------------------------------------

STORED = node(
    prop("body", Scalar.BLOB, 1), prop("name", Scalar.STRING, 2), prop("size", Scalar.I64, 3)
)
ROWS: list[Row] = [
    {"id": "a", "body": {"data": b"one", "uri": None}, "name": "x", "size": 1},
    {"id": "b", "body": None, "name": "y", "size": 1 << 40},
]


def test_a_table_whose_columns_are_wanted_is_itself(tables: Tables) -> None:
    handle = tables(STORED, ROWS)
    assert mapped(handle, map_type(STORED, STORED, NOBODY)) is handle


def test_blobs_are_read_by_their_stored_column(tables: Tables) -> None:
    wanted = node(prop("payload", Scalar.BLOB, 1), prop("plan", Scalar.BLOB, 9))
    view = mapped(tables(STORED, ROWS), map_type(STORED, wanted, NOBODY))
    found = view.scan(ScanRequest(with_row_id=True)).read_all()
    ids = found[ROW_ID].to_pylist()
    assert found.schema.field("payload").type == found.schema.field("plan").type == BLOB_DESCRIPTION
    assert view.read_blobs("payload", ids) == (b"one", None)
    assert view.read_blobs("plan", ids) == (None, None)
    opened = view.open_blob("payload", ids[0])
    assert opened is not None
    assert opened.read(0, opened.size) == b"one"
    assert view.open_blob("plan", ids[0]) is None
    whole = view.scan(ScanRequest(blobs_as_bytes=True)).read_all()
    assert whole["payload"].to_pylist() == [b"one", None]
    assert whole["plan"].to_pylist() == [None, None]


def test_rows_are_found_under_the_wanted_name(tables: Tables) -> None:
    wanted = node(prop("grade", Scalar.STRING, 9, "x"), prop("label", Scalar.STRING, 2))
    view = mapped(tables(STORED, ROWS), map_type(STORED, wanted, NOBODY))
    assert view.find("label", ["y"])["label"].to_pylist() == ["y"]
    assert view.find("grade", ["x"]).num_rows == 2
    assert view.find("grade", ["y"]).num_rows == 0


def test_indexes_are_listed_under_the_wanted_names(tables: Tables) -> None:
    datasets = tables.store.datasets
    at = tables(STORED, ROWS).at
    specs = [IndexSpec("name", IndexKind.BTREE), IndexSpec("size", IndexKind.BTREE)]
    at = datasets.commit_staged(datasets.stage_create_index(at, specs)).at
    wanted = node(prop("label", Scalar.STRING, 2))
    view = mapped(datasets.open(at.location, version=at.version), map_type(STORED, wanted, NOBODY))
    assert [index.columns for index in view.indexes()] == [("label",)]


def test_a_column_of_neither_type_is_rejected(tables: Tables) -> None:
    view = mapped(
        tables(STORED, ROWS), map_type(STORED, node(prop("label", Scalar.STRING, 2)), NOBODY)
    )
    for name in ("name", "size"):
        with pytest.raises(InvalidScanError, match=f"no column `{name}` among `id`, `label`"):
            view.scan(ScanRequest(columns=(name,)))


def test_what_a_view_cannot_answer_is_rejected(tables: Tables) -> None:
    narrow = node(prop("size", Scalar.I32, 3), prop("at", Scalar.F32, 9))
    view = mapped(tables(STORED, ROWS), map_type(STORED, narrow, NOBODY))
    assert view.scan().read_all()["size"].to_pylist() == [1, None]
    with pytest.raises(InvalidScanError, match="`size` is stored as int64"):
        view.count(IsNull("size"))
    for column in ("size", "at"):
        with pytest.raises(InvalidScanError, match=f"`{column}` is .*cannot be searched"):
            view.scan(ScanRequest(nearest=VectorSearch(column, (1.0,), 1)))


def test_columns_that_an_apply_wrote_are_no_difference(tables: Tables) -> None:
    """The view of the old version and the new version share their fragments: nothing is read."""
    before = tables(STORED, ROWS)
    after_type = node(
        prop("body", Scalar.BLOB, 1),
        prop("grade", Scalar.I64, 9, 5),
        prop("label", Scalar.STRING, 2),
        prop("size", Scalar.F64, 3),
    )
    mapping = map_type(STORED, after_type, NOBODY)
    sources = {c.field.name: ColumnSource(c.stored, c.fill) for c in mapping.columns}
    datasets = tables.store.datasets
    at = datasets.commit_staged(
        datasets.stage_columns(before.at, after_type.arrow_schema, sources)
    ).at
    after = datasets.open(at.location, version=at.version)
    names = after_type.arrow_schema.names
    found = table_changes(mapped(before, mapping), after, columns=names, blobs=["body"])
    assert found.is_empty
    more = pa.table(
        {
            "id": ["c"],
            "body": pa.array([None], BLOB_STORAGE),
            "grade": [5],
            "label": ["z"],
            "size": [0.5],
        },
        schema=after_type.arrow_schema,
    )
    at = datasets.commit_staged(datasets.stage_append(at, more)).at
    after = datasets.open(at.location, version=at.version)
    found = table_changes(mapped(before, mapping), after, columns=names, blobs=["body"])
    assert found.inserted.ids.to_pylist() == ["c"]
    assert not len(found.updated_after)


def test_values_that_a_side_has_lost_since_are_a_difference(tables: Tables) -> None:
    """The rows of both sides are in one file, which still holds the dropped column."""
    before = tables(STORED, ROWS)
    without = node(prop("body", Scalar.BLOB, 1), prop("size", Scalar.I64, 3))
    datasets = tables.store.datasets
    sources = {name: ColumnSource(name) for name in without.arrow_schema.names}
    at = datasets.commit_staged(datasets.stage_columns(before.at, without.arrow_schema, sources)).at
    after = datasets.open(at.location, version=at.version)
    back = mapped(after, map_type(without, STORED, NOBODY))
    names = STORED.arrow_schema.names
    for pair in ((back, before), (before, back)):
        found = table_changes(*pair, columns=names, blobs=["body"])
        assert found.updated_after.ids.to_pylist() == ["a", "b"]
    there = mapped(before, map_type(STORED, without, NOBODY))
    names = without.arrow_schema.names
    assert table_changes(there, after, columns=names, blobs=["body"]).is_empty


def test_a_value_that_a_view_cannot_show_is_a_difference(tables: Tables) -> None:
    """Under the narrower type it would look like the null of the other side."""
    wide = node(prop("size", Scalar.I64, 3))
    narrow = node(prop("size", Scalar.I32, 3))
    before = tables(wide, [{"id": "a", "size": 2**40}, {"id": "b", "size": None}])
    after = tables(narrow, [{"id": "a", "size": None}, {"id": "b", "size": None}])
    view = mapped(before, map_type(wide, narrow, NOBODY))
    names = narrow.arrow_schema.names
    for pair in ((view, after), (after, view)):
        assert table_changes(*pair, columns=names).updated_after.ids.to_pylist() == ["a"]
