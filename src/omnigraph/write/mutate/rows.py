"""Assigned values of a mutation become columns in the exact stored types.

1. What arrives with a request is converted like a literal: between numeric types only without a
   change of the number, floats rounded to F32, text to a blob's bytes.
2. A value that does not fit, and null for a property that needs one, is an error of the request;
   it names statement, type and property.
3. The same plan and the same bindings give the same columns. A blob that lies outside of the graph
   is read when it is assigned, and its bytes are the graph's own from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.query.bindings import Bindings
from omnigraph.query.check.cast import stored_number
from omnigraph.query.plan.plan import AssignedValue, ConstantValue
from omnigraph.schema import EntityType
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.equality import equal_rows
from omnigraph.values import PropType, Scalar
from omnigraph.write.stage.columns import Mask, flat
from omnigraph.write.stage.external_blobs import ExternalBlobs

_SHOWN_MAX: Final = 60

_RANGE_NAMES: Final = {
    Scalar.I32: "Int32",
    Scalar.I64: "Int64",
    Scalar.U32: "UInt32",
    Scalar.U64: "UInt64",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
}


class MutationValueError(InvalidInputError):
    """A value of a request cannot be stored in the property that it is assigned to."""

    code = "OG-MUTATION-VALUE"
    template = "statement {statement}, {type_name}: {problem}"
    problem: str
    statement: int
    type_name: str
    property_name: str
    hint: str | None = None

    @property
    def details(self) -> dict[str, object]:
        """The facts for the JSON form of the error."""
        return {
            "statement": self.statement,
            "type": self.type_name,
            "property": self.property_name,
            "problem": self.problem,
        }


class UpsertIncompleteError(InvalidInputError):
    """An upsert found no row of its key, and lacks values that a new row needs."""

    code = "OG-UPSERT-INCOMPLETE"
    statement: int
    type_name: str
    entity_id: str
    missing: tuple[str, ...]

    def _message(self) -> str:
        shown = ", ".join(f"'{name}'" for name in self.missing)
        return (
            f"statement {self.statement}: there is no {self.type_name} '{_cut(self.entity_id)}' to"
            f" change, and inserting it lacks required properties: {shown}"
        )

    def _hint(self) -> str:
        return "add " + ", ".join(f"`{name}: …`" for name in self.missing)


@dataclass(frozen=True)
class AssignedColumns:
    """The assignments of one statement as columns of one row each, by property."""

    bindings: Bindings
    statement: int
    type_name: str
    external_blobs: ExternalBlobs

    def of(self, assignments: Iterable[AssignedValue]) -> dict[str, pa.Array]:
        """Return a column of one row for each assignment."""
        return {assigned.property: self._column(assigned) for assigned in assignments}

    def endpoint(self, end: str, value: object) -> str:
        """Return the id at one end of a new edge."""
        if not isinstance(value, str):
            raise self._error(end, f"'{end}' takes the id of a node, found null")
        return value

    def require_vectors(self, embeds: Iterable[str]) -> None:
        """Refuse a new row without a required vector, when no vectors are made."""
        for name in embeds:
            raise self._error(
                name,
                f"non-nullable vector property '{name}' has null or invalid values",
                hint=f"give `{name}: …`, or set OMNIGRAPH_EMBED_PROVIDER to have it made",
            )

    def _column(self, assigned: AssignedValue) -> pa.Array:
        bound = self.bindings.value_of(assigned.value)
        name, prop_type = assigned.property, assigned.prop_type
        if bound.value is None:
            if not prop_type.nullable:
                raise self._error(name, _null_problem(name, prop_type))
            return pa.nulls(1, prop_type.arrow_type)
        if prop_type.scalar is Scalar.BLOB:
            return self._blob(name, prop_type, bound.value)
        if prop_type.is_list or prop_type.is_vector:
            value = self._items(name, prop_type, bound.value, bound.prop_type.scalar)
        else:
            value = self._item(name, prop_type.scalar, bound.value, "value")
        return pa.array([value], prop_type.arrow_type)

    def _items(
        self, name: str, prop_type: PropType, value: ConstantValue, found: Scalar
    ) -> ConstantValue:
        items = value if isinstance(value, tuple) else (value,)
        wanted = Scalar.F32 if prop_type.is_vector else prop_type.scalar
        what = "vector value" if prop_type.is_vector else "list value"
        if found is wanted:
            return items
        return tuple(self._item(name, wanted, item, what) for item in items)

    def _item(self, name: str, wanted: Scalar, value: ConstantValue, what: str) -> ConstantValue:
        if isinstance(value, bool) or not isinstance(value, int | float) or not wanted.is_numeric:
            return value
        stored = stored_number(value, wanted)
        if stored is None:
            raise self._error(name, _number_problem(name, wanted, value, what))
        return stored

    def _blob(self, name: str, prop_type: PropType, value: ConstantValue) -> pa.Array:
        converted = convert_values([value], prop_type, name)
        if not converted.is_clean:
            raise self._error(name, str(converted.errors[0]))
        if self.external_blobs.denied(converted.column).any():
            raise self._error(
                name,
                f"property '{name}': new external Blob URI ingress is denied for this graph",
                hint="give the bytes as `base64:…`, or name the folder that may be read:"
                " `external_blob_bases=[...]`, `--external-blob-base`",
            )
        return self.external_blobs.owned(converted.column)

    def _error(self, name: str, problem: str, hint: str | None = None) -> MutationValueError:
        return MutationValueError(
            problem,
            statement=self.statement,
            type_name=self.type_name,
            property_name=name,
            hint=hint,
        )


def complete_row(entity: EntityType, given: Mapping[str, pa.Array]) -> pa.Table:
    """Return one row with all stored columns; what was not given is null."""
    return pa.Table.from_arrays(
        [
            given[field.name] if field.name in given else pa.nulls(1, field.type)
            for field in entity.arrow_schema
        ],
        schema=entity.arrow_schema,
    )


def assign(rows: pa.Table, given: Mapping[str, pa.Array]) -> pa.Table:
    """Return the rows with these columns replaced by one value each."""
    everywhere = pa.array(np.zeros(rows.num_rows, np.int64))
    for name, value in given.items():
        number = rows.schema.get_field_index(name)
        rows = rows.set_column(number, rows.schema.field(number), value.take(everywhere))
    return rows


def is_changed(before: pa.Table, after: pa.Table, names: Iterable[str]) -> Mask:
    """Return which rows differ in one of these columns; large values count as different."""
    changed = np.zeros(before.num_rows, np.bool_)
    for name in names:
        if is_large(before.schema.field(name).type):
            changed[:] = True
        else:
            changed |= ~equal_rows(flat(before[name]), flat(after[name]))
    return changed


def is_large(kind: pa.DataType) -> bool:
    """Whether values of a column, vectors and Blobs, are too large to be read for a comparison."""
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_struct(kind))


def _null_problem(name: str, prop_type: PropType) -> str:
    subject = {Scalar.BLOB: "blob property", Scalar.VECTOR: "vector property"}
    what = subject.get(prop_type.scalar, "property")
    return f"non-nullable {what} '{name}' has null or invalid values"


def _number_problem(name: str, wanted: Scalar, value: int | float, what: str) -> str:
    shown = _cut(repr(value))
    if isinstance(value, float) and wanted.is_integer and not value.is_integer():
        return f"property '{name}' {what} {shown} cannot be stored in {wanted} without a change"
    if (
        wanted.is_float
        and isinstance(value, int)
        and stored_number(float(value), wanted) is not None
    ):
        return f"property '{name}' {what} {shown} cannot be stored in {wanted} without a change"
    return f"property '{name}' {what} {shown} exceeds {_RANGE_NAMES[wanted]} range"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
